"""Bulk actions that are killed in the middle, asked for again, and asked for twice at once."""

from __future__ import annotations

import functools
import http.client
import json
import re
import signal
from collections import Counter
from typing import Any

import msgspec
import pytest

from onceward.core.bulks import SILENT_MS, BulkRow
from tests.attack.site import Process, Site, at_once
from tests.helpers import eventually

MANY = 30
KILLED_AT = 12
REPLAY = ("runs", "replay", "--workflow", "breaks", "--yes", "--request", "mend", "--json")
RETRY = ("runs", "retry", "--workflow", "breaks", "--state", "failed", "--yes", "--request", "mend", "--json")


def token(site: Site, role: str = "operator") -> str:
    made = site.spawn("-m", "onceward", "tokens", "add", f"robot-{role}", "--role", role, "shop:app")
    assert made.wait() == 0, made.text()
    found = re.search(r"^owt_\S+$", made.text(), re.MULTILINE)
    assert found is not None
    return found[0]


def failed(site: Site, shop: Any, count: int = MANY) -> list[str]:
    """Give runs that failed, of which a retry mends each."""
    runs = [shop.app.sync.start(shop.breaks, f"A{number}").run_id for number in range(count)]
    site.wait_all(shop.app, count)
    assert site.tally(shop.app) == {"failed": count}
    return runs


def silent(shop: Any, bulk_id: str = "mend") -> None:
    """Let whoever was at it have been silent for long."""
    store = shop.app.worker.store
    row: BulkRow = store.bulk(bulk_id)
    assert not row.is_over, row
    assert store.tell_bulk(msgspec.structs.replace(row, told_at=row.told_at - SILENT_MS - 1))


def command(site: Site, *arguments: str, failpoint: str = "", **env: str) -> Process:
    return site.spawn("-m", "onceward", *arguments, failpoint=failpoint, is_afresh=False, **env)


def reply_of(process: Process) -> dict[str, Any]:
    assert process.wait(120) == 0, process.text()
    found: dict[str, Any] = json.loads(process.text())
    return found


def check_once_each(site: Site, shop: Any, runs: list[str], verb: str) -> None:
    """Fail unless each run got the action once, and nothing else got any."""
    if verb == "replay":
        site.wait_all(shop.app, 2 * len(runs))
        made = Counter(row.replay_of for row in shop.app.sync.runs(limit=1000) if row.replay_of)
        assert made == dict.fromkeys(runs, 1)
    else:
        eventually(lambda: site.tally(shop.app) == {"completed": len(runs)}, 40, what="all mended")
        asked = {run_id: len(shop.app.worker.store.audits(run_id)) for run_id in runs}
        assert asked == dict.fromkeys(runs, 1)
    entries = [row for row in shop.app.worker.store.audits("") if row.verb == f"bulk {verb}"]
    assert len(entries) == 1
    site.check(shop.app)


@pytest.mark.parametrize("verb", ["replay", "retry"])
@pytest.mark.parametrize("killed", ["command", "server", "client"])
def test_a_bulk_action_that_is_killed_goes_on_by_its_id(site: Site, killed: str, verb: str) -> None:
    """What it does to runs changes what its filter finds; it is about those that it found when it began."""
    site.worker()
    shop = site.desk()
    runs = failed(site, shop)
    arguments = REPLAY if verb == "replay" else RETRY
    failpoint = f"steer.after_commit:kill:{KILLED_AT}"
    if killed == "command":
        assert command(site, *arguments, failpoint=failpoint).wait(120) == -signal.SIGKILL
        env = {}
    else:
        env = {"ONCEWARD_TOKEN": token(site)}
        if killed == "client":
            failpoint = failpoint.replace("kill", "pause")
        server = site.serve("shop:app", failpoint=failpoint)
        env["ONCEWARD_API_URL"] = f"http://127.0.0.1:{server.port}"
        client = command(site, *arguments, **env)
        if killed == "server":
            assert client.wait(120) == 3, client.text()
            assert server.wait() == -signal.SIGKILL
            server = site.serve("shop:app")
            env["ONCEWARD_API_URL"] = f"http://127.0.0.1:{server.port}"
        else:
            server.wait_stopped()
            client.kill()
            server.signal(signal.SIGCONT)
    if killed != "client":
        silent(shop)

    done = reply_of(command(site, *arguments, **env))

    assert (done["matched"], done["done"], done["refused"]) == (MANY, MANY, 0)
    assert (done["is_over"], done["is_interrupted"]) == (True, False)
    check_once_each(site, shop, runs, verb)
    assert reply_of(command(site, *arguments, **env)) == done


def ask(port: int, bearer: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {bearer}", "Content-Type": "application/json"}
    try:
        connection.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_one_request_at_two_servers_at_once_has_one_effect(site: Site) -> None:
    """A verb on one run, and a bulk action; and the same id with anything else is refused at both."""
    site.worker()
    shop = site.desk()
    runs = failed(site, shop, 12)
    bearer = token(site)
    ports = [site.serve().port for _ in range(2)]

    def both(path: str, *bodies: Any) -> list[tuple[int, Any]]:
        calls = [
            functools.partial(ask, port, bearer, "POST", path, body) for port in ports for body in bodies
        ]
        return at_once(*calls)

    told = both(f"/runs/{runs[0]}/replay", {"request_id": "one"}, {"request_id": "one"})
    assert [status for status, _ in told] == [200] * 4
    assert len({reply["run_id"] for _, reply in told}) == 1
    other = both(f"/runs/{runs[1]}/replay", {"request_id": "one"})
    assert [(status, reply["code"]) for status, reply in other] == [(409, "state_conflict")] * 2
    assert [status for status, _ in both(f"/runs/{runs[0]}/dismiss", {"request_id": "one"})] == [409] * 2
    site.wait_all(shop.app, 13)

    query = {"workflow": "breaks", "until": shop.app.worker.now_ms()}
    bulk = {"query": query, "action": {"verb": "replay"}, "dry_run": False, "request_id": "many"}
    told = both("/runs/bulk", bulk, bulk)
    assert [status for status, _ in told] == [200] * 4

    def ends() -> list[Any]:
        replies = [ask(port, bearer, "GET", "/bulk/many")[1] for port in ports]
        return replies if all(reply["is_over"] for reply in replies) else []

    first, second = eventually(ends, 40, what="both tell the end")
    assert first == second
    assert (first["matched"], first["done"], first["is_interrupted"]) == (13, 13, False)
    other = both("/runs/bulk", {**bulk, "action": {"verb": "dismiss"}})
    assert [(status, reply["code"]) for status, reply in other] == [(409, "id_clash")] * 2
    site.wait_all(shop.app, 26)
    assert site.tally(shop.app).total() == 26
    site.check(shop.app)
