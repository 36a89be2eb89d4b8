"""What the clients of four kinds send arrives at the test's services as they would send it, with its key."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import requests

from onceward import App, Context
from onceward.outgoing import keyed
from onceward.testing import Answer, AppInTest, Asked, Outside
from onceward.testing.kit.patches import Late

URL = "https://pay.example/charges"


async def with_httpx() -> Any:
    async with keyed(httpx.AsyncClient()) as client:
        answer = await client.post(URL, json={"cents": 5}, params={"try": "1"})
        return [answer.status_code, answer.json()]


def with_httpx_sync() -> Any:
    with keyed(httpx.Client()) as client:
        answer = client.post(URL, json={"cents": 5}, params={"try": "1"})
        return [answer.status_code, answer.json()]


async def with_httpx2() -> Any:
    async with keyed(httpx2.AsyncClient()) as client:
        answer = await client.post(URL, json={"cents": 5}, params={"try": "1"})
        return [answer.status_code, answer.json()]


def with_httpx2_sync() -> Any:
    with keyed(httpx2.Client()) as client:
        answer = client.post(URL, json={"cents": 5}, params={"try": "1"})
        return [answer.status_code, answer.json()]


def with_requests() -> Any:
    with keyed(requests.Session()) as client:
        answer = client.post(URL, json={"cents": 5}, params={"try": "1"}, timeout=5)
        return [answer.status_code, answer.json()]


async def with_aiohttp() -> Any:
    async with (
        keyed(aiohttp.ClientSession()) as client,
        client.post(URL, json={"cents": 5}, params={"try": "1"}) as answer,
    ):
        return [answer.status, await answer.json()]


async def in_chunks() -> Any:
    async def parts() -> AsyncIterator[bytes]:
        yield b'{"cents"'
        yield b": 5}"

    async with (
        keyed(aiohttp.ClientSession()) as client,
        client.post(URL, data=parts(), params={"try": "1"}) as answer,
    ):
        return [answer.status, await answer.json()]


@pytest.mark.parametrize(
    "send",
    [
        with_httpx,
        with_httpx_sync,
        with_httpx2,
        with_httpx2_sync,
        with_requests,
        with_aiohttp,
        in_chunks,
    ],
)
def test_a_request_is_answered_counted_and_known_by_its_key(send: Callable[[], Any]) -> None:
    app, outside, got = App("sqlite:///never-made.db"), Outside(), list[Asked]()

    @app.workflow
    async def pay(ctx: Context) -> Any:
        return await ctx.step.run("pay", send)

    def answer(asked: Asked) -> Answer:
        got.append(asked)
        return Answer(201, {"id": "ch_1"})

    outside.http.post(URL, answer)
    with AppInTest(app, outside=outside) as test:
        run = test.wait(app.start(pay))
        assert test.wait(run.result()) == [201, {"id": "ch_1"}]

    (asked,) = got
    (effect,) = outside.effects
    assert (asked.method, asked.url, asked.json()) == ("POST", f"{URL}?try=1", {"cents": 5})
    assert asked.key is not None
    assert (effect.step, effect.name, effect.key) == ("pay", f"POST {URL}", asked.key)


def test_the_same_key_is_the_same_effect_and_with_another_body_a_clash() -> None:
    outside, made = Outside(), iter(range(10))
    outside.http.post(URL, lambda _asked: {"id": next(made)})

    def ask(key: str | None, body: bytes = b"1") -> Answer:
        return outside.http.ask(Asked("POST", URL, {} if key is None else {"idempotency-key": key}, body))

    assert [ask("a").body, ask("a").body, ask("b").body] == [{"id": 0}, {"id": 0}, {"id": 1}]
    assert outside.count(f"POST {URL}") == 2
    assert ask("a", b"2").status == 409
    assert outside.effects[-1].clash
    assert [ask(None).body, ask(None).body] == [{"id": 2}, {"id": 3}]
    assert outside.count(f"POST {URL}") == 5


def test_an_answer_that_refuses_did_nothing() -> None:
    outside = Outside()
    outside.http.post(URL, Answer(422, "no"))

    answers = [outside.http.ask(Asked("POST", URL, {"idempotency-key": "a"}, b"")) for _ in range(2)]

    assert [answer.status for answer in answers] == [422, 422]
    assert outside.effects == []


def test_a_put_to_its_own_place_is_one_effect_however_often() -> None:
    outside = Outside()
    outside.http.put("https://pay.example/labels/*")

    for place in ("7", "7", "8"):
        outside.http.ask(Asked("PUT", f"https://pay.example/labels/{place}", {}, b""))

    assert outside.count("PUT https://pay.example/labels/*") == 2


def test_a_client_that_a_step_imports_is_changed_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_client.py").write_text("name = 'its own'")
    monkeypatch.syspath_prepend(tmp_path)
    late = Late({"late_client": lambda module: setattr(module, "name", f"not {module.name}")})
    monkeypatch.setattr(sys, "meta_path", [late, *sys.meta_path])

    assert import_module("late_client").name == "not its own"
    del sys.modules["late_client"]
    assert import_module("late_client").name == "its own"
    del sys.modules["late_client"]
