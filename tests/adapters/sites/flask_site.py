"""A Flask application that parses every body before its views see it."""

from __future__ import annotations

from flask import Flask, Response, jsonify, request

from onceward.adapters.flask import Adapter
from tests.adapters.sites.shop import app, greet, linger

hooks = Adapter(app)
web = Flask(__name__)
hooks.mount(web)


@web.before_request
def parse() -> None:
    request.get_data(cache=False)
    assert not request.form


@web.after_request
def say(response: Response) -> Response:
    response.headers["X-Parsed"] = "state"
    return response


@web.post("/start/<name>")
def start(name: str) -> Response:
    return jsonify(hooks.start(greet, name, id=name).run_id)


@web.post("/start-other/<name>")
async def start_other(name: str) -> Response:
    return jsonify(hooks.start(greet, name, id=name).run_id)


@web.post("/emit/<order>")
def emit(order: str) -> Response:
    return jsonify(hooks.emit("order.paid", {"order": order}, id=order).runs[0].run_id)


@web.get("/result/<run_id>")
def result(run_id: str) -> Response:
    return jsonify(hooks.run(run_id).result("20s"))


@web.post("/linger/<name>")
def begin(name: str) -> Response:
    return jsonify(hooks.start(linger, name).run_id)
