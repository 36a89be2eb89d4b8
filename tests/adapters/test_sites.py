"""Each adapter in its real framework, under a real server, over HTTP, on both stores."""

from __future__ import annotations

import functools
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onceward import App
from onceward.sync import SyncApp
from tests.adapters.serving import Reply, Site, serving
from tests.helpers import eventually

SITES = "tests.adapters.sites"
# Imported before the fork: what --preload is for, and what an app that is opened too early breaks on.
PREFORK = [
    "gunicorn",
    "--bind",
    "127.0.0.1:PORT",
    "--preload",
    "--graceful-timeout",
    "20",
    "--no-control-socket",
]
UVICORN = ["uvicorn", "--port", "PORT", "--log-level", "warning"]

SERVERS = {
    "fastapi, three workers": [*UVICORN, "--workers", "3", f"{SITES}.fastapi_site:web"],
    "starlette, prefork": [*PREFORK, "--workers", "2", "--worker-class", "asgi", f"{SITES}.starlette_site:web"],
    "litestar": [*UVICORN, f"{SITES}.litestar_site:web"],
    "django, asgi, two workers": [*UVICORN, "--workers", "2", f"{SITES}.django_site:asgi"],
    "django, sync, prefork": [*PREFORK, "--workers", "3", "--config", f"python:{SITES}.gunicorn_conf", f"{SITES}.django_site:wsgi"],
    "django, threads, prefork": [*PREFORK, "--workers", "2", "--threads", "4", f"{SITES}.django_site:wsgi"],
    "flask, sync, prefork": [*PREFORK, "--workers", "3", f"{SITES}.flask_site:web"],
    "flask, threads, prefork": [*PREFORK, "--workers", "3", "--threads", "4", f"{SITES}.flask_site:web"],
}  # fmt: skip

# How many workers open the app without being asked anything; others wait for a request.
OPENED = {
    "fastapi, three workers": 3,
    "starlette, prefork": 2,
    "litestar": 1,
    "django, asgi, two workers": 2,
    "django, sync, prefork": 3,
}
# Of three workers one is killed under way; the server starts another.
KILLED = {"fastapi, three workers", "flask, threads, prefork"}

EVENTS = 12
DOUBLED = 4


@pytest.mark.parametrize("server", SERVERS)
def test_a_delivery_has_one_finished_run_in_every_framework(
    server: str, store_url: str, tmp_path: Path
) -> None:
    looker = App(store_url, poll="100ms").sync
    with serving(SERVERS[server], store_url, tmp_path) as site:
        looker.open(runs=False)
        with looker:
            eventually(lambda: len(pids(looker)) >= OPENED.get(server, 1), 30, what="every worker has opened")
            doubled_deliveries_have_one_run(site, looker)
            what_is_not_genuine_is_refused(site)
            verbs_work_in_handlers(site)
            nobody_else_is_kept_from_the_framework(site)
            nothing_went_wrong(site)
            if server in KILLED:
                a_killed_worker_takes_nothing_with_it(site, looker)
            stopping_lets_a_step_finish(site, looker)


def doubled_deliveries_have_one_run(site: Site, looker: SyncApp) -> None:
    ids = [f"evt_{number}" for number in range(EVENTS)] * DOUBLED
    with ThreadPoolExecutor(12) as senders:
        replies = list(senders.map(site.deliver, ids))

    assert {reply.status for reply in replies} == {202}, site.log()
    runs = {event_id: {reply.run for reply in replies if reply.event == event_id} for event_id in ids}
    assert {event_id: len(found) for event_id, found in runs.items()} == dict.fromkeys(ids, 1)
    firsts = [reply for reply in replies if not reply.json["events"][0]["duplicate"]]
    assert len(firsts) == EVENTS
    for event_id, (run_id,) in runs.items():
        assert looker.run(run_id).result("20s") == event_id
    assert site.ledger() == sorted(f"charged {event_id}" for event_id in runs)

    again = site.deliver("evt_0")
    assert (again.status, again.run) == (202, *runs["evt_0"])
    chunked = site.deliver("evt_chunks", is_chunked=True, pad=30_000)
    assert chunked.status == 202
    assert looker.run(chunked.run).result("20s") == "evt_chunks"


def what_is_not_genuine_is_refused(site: Site) -> None:
    assert site.deliver("evt_forged", secret="whsec_of_somebody_else_0123").status == 401
    assert site.deliver("evt_large", pad=100_000).status == 413
    assert site.deliver("evt_large", is_chunked=True, pad=100_000).status == 413
    assert site.ask("POST", "/webhooks/hooks/nobody").status == 404
    wrong = site.ask("GET", "/webhooks/hooks/stripe")
    assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
    assert "charged evt_forged" not in site.ledger()


def verbs_work_in_handlers(site: Site) -> None:
    first, second = site.ask("POST", "/start/Ada"), site.ask("POST", "/start-other/Ada")
    emitted = site.ask("POST", "/emit/A-1")

    assert (first.text, is_fine(first)) == (second.text, is_fine(second))
    assert site.ask("GET", f"/result/{first.text}").text == "hello Ada"
    assert site.ask("POST", "/emit/A-1").text == emitted.text
    assert site.ask("GET", f"/result/{emitted.text}").text == "paid A-1"
    assert [line for line in site.ledger() if not line.startswith("charged")] == ["greet Ada", "paid A-1"]


def is_fine(reply: Reply) -> bool:
    """Say whether a handler answered, and the middleware before it had its part."""
    assert reply.headers["x-parsed"] == "state"
    return reply.status in (200, 201)


def nobody_else_is_kept_from_the_framework(site: Site) -> None:
    for path in ("/webhooks", "/webhooks/other", "/hooks/stripe", "/healthz", "/"):
        reply = site.ask("GET", path)
        assert (reply.status, reply.headers.get("content-type")) != (404, "application/problem+json"), path
        assert reply.status == 404


def nothing_went_wrong(site: Site) -> None:
    log = site.log()
    assert "Traceback" not in log
    assert "ERROR" not in log


def a_killed_worker_takes_nothing_with_it(site: Site, looker: SyncApp) -> None:
    ids = [f"kill_{number}" for number in range(10)] * 5
    victim = pids(looker)[0]
    with ThreadPoolExecutor(12) as senders:
        sent = [senders.submit(eventually, functools.partial(site.taken, event_id), 30) for event_id in ids]
        sent[9].result()
        os.kill(victim, signal.SIGKILL)
        replies = [reply for one in sent if (reply := one.result()) is not None]

    runs = {event_id: {reply.run for reply in replies if reply.event == event_id} for event_id in ids}
    assert {event_id: len(found) for event_id, found in runs.items()} == dict.fromkeys(ids, 1)
    for event_id, (run_id,) in runs.items():
        assert looker.run(run_id).result("30s") == event_id
    eventually(lambda: victim not in pids(looker), 30, what="the killed worker is noticed")


def pids(looker: SyncApp) -> list[int]:
    return [process.pid for process in looker.processes() if process.pid != os.getpid()]


def stopping_lets_a_step_finish(site: Site, looker: SyncApp) -> None:
    run = looker.run(site.ask("POST", "/linger/slow").text)
    eventually(lambda: "begun slow" in site.ledger(), what="a step begins")

    site.stop()
    (site.home / "slow.go").touch()

    assert site.status() in (0, -15), site.log()
    assert [line for line in site.ledger() if line.endswith("slow")] == ["begun slow", "ended slow"]
    assert [step.name for step in run.steps()] == ["wait"]
    assert run.attempts() == []
    assert pids(looker) == []
