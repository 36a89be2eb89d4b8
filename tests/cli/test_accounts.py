"""`onceward users` and `tokens`, and what `serve` does about who may look: in real processes, on both stores."""

from __future__ import annotations

import http.client
import json
import re
import signal
from pathlib import Path
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

from onceward.cli.main import main
from onceward.web.auth import accounts
from tests.cli.running import SECONDS, SHOP, ask, onceward, running

PASSWORD = "correct horse battery"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_dsn"))
    return f"sqlite:///{tmp_path}/a.db"


def told(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
    done = CliRunner().invoke(main, list(arguments), input=stdin, prog_name="onceward")
    return done.exit_code, done.stdout, done.stderr


def test_users_are_added_listed_changed_and_removed(store: str) -> None:
    add = told("users", "add", "ann", "--role", "admin", "--store", store, stdin=f"{PASSWORD}\n{PASSWORD}\n")
    again = told("users", "add", "ann", "--password-stdin", "--store", store, stdin=f"{PASSWORD}\n")
    short = told("users", "add", "bob", "--password-stdin", "--store", store, stdin="short\n")
    listed = told("users", "list", "--store", store)
    changed = told("users", "password", "ann", "--password-stdin", "--store", store, stdin="another one!!\n")
    role = told("users", "role", "ann", "--role", "viewer", "--store", store)
    after = told("users", "list", "--store", store)
    removed = told("users", "remove", "ann", "--store", store)
    gone = told("users", "remove", "ann", "--store", store)

    assert add[0] == 0
    assert add[1].endswith("ann may log in as admin.\n")
    assert PASSWORD not in add[1]
    assert (again[0], short[0]) == (2, 2)
    assert "already" in again[2]
    assert "10 characters" in short[2]
    assert re.fullmatch(r"ann  admin  made \d{4}-.* UTC\n", listed[1])
    assert changed == (0, "ann has another password, and is logged out everywhere.\n", "")
    assert role[1] == "ann is viewer now.\n"
    assert "viewer" in after[1]
    assert removed[0] == 0
    assert gone[0] == 1
    assert told("users", "list", "--store", store)[1] == "The store has no users in this namespace.\n"
    assert told("users", "list", "--store", store, "--namespace", "other")[0] == 0


def test_tokens_are_added_listed_and_revoked(store: str) -> None:
    made = told("tokens", "add", "ci", "--role", "operator", "--expires", "90d", "--store", store)
    wrong = told("tokens", "add", "x", "--expires", "soon", "--store", store)
    listed = told("tokens", "list", "--store", store)
    revoked = told("tokens", "revoke", "ci", "--store", store)
    gone = told("tokens", "revoke", "ci", "--store", store)

    token = made[1].strip()
    assert re.fullmatch(r"owt_[a-z2-7]{12}_[A-Za-z0-9_-]{43}", token)
    assert "not shown again" in made[2]
    assert wrong[0] == 2
    assert listed[1].startswith(f"ci  {token[4:16]}  operator  made ")
    assert "never used" in listed[1]
    assert token not in listed[1]
    assert (revoked[0], gone[0]) == (0, 1)


def test_the_first_look_is_by_a_link_and_a_user_ends_that(shop: Path) -> None:
    with running("serve", "shop:app", "--port", "0", cwd=shop) as server:
        port = server.port()
        found = re.search(r"dashboard +http://127\.0\.0\.1:\d+(/login)\?link=(owl_\S+) ", server.said())
        assert found is not None
        same = {
            "Origin": f"http://127.0.0.1:{port}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        shut = ask(port, "GET", "/api/v1/counts")
        told = [
            ask(port, "POST", "/login", urlencode({"link": found[2]}).encode(), same)[0] for _ in range(2)
        ]
        added = onceward(
            "users", "add", "ann", "--password-stdin", cwd=shop, env=STORE, stdin=f"{PASSWORD}\n"
        )
        ann = ask(port, "POST", "/login", urlencode({"name": "ann", "password": PASSWORD}).encode(), same)[0]
    with running("serve", "shop:app", "--port", "0", cwd=shop) as server:
        server.port()
        said = server.said()

    assert (shut[0], json.loads(shut[1])["code"]) == (401, "unauthorized")
    assert told == [303, 401]
    assert added.returncode == 0, added.stderr
    assert ann == 303
    assert "link=" not in said
    assert re.search(r"dashboard +http://127\.0\.0\.1:\d+/\n", said)


STORE = {"ONCEWARD_STORE": "sqlite:///shop.db"}


def test_a_token_is_used_and_revoked_while_it_is_served(shop: Path) -> None:
    made = onceward("tokens", "add", "ci", "shop:app", cwd=shop)
    headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
    with running("serve", "shop:app", "--port", "0", cwd=shop) as server:
        port = server.port()
        before = ask(port, "GET", "/api/v1/counts", headers=headers)[0]
        changed = ask(port, "POST", "/api/v1/runs/run_x/retry", headers=headers)[0]
        onceward("tokens", "revoke", "ci", "shop:app", cwd=shop)
        after = ask(port, "GET", "/api/v1/counts", headers=headers)[0]
        rebound = ask(port, "GET", "/api/v1/counts", headers={**headers, "Host": "evil.example"})[0]
        page = ask(port, "GET", "/login")

    assert (before, changed, after, rebound) == (200, 403, 401, 421)
    assert b"Onceward" in page[1]


def banner_of(*arguments: str, cwd: Path) -> str:
    """Give all that a server says from its start to its end; its address is not the last line."""
    with running(*arguments, cwd=cwd) as server:
        server.wait_for(", health at /healthz")
        server.signal(signal.SIGTERM)
        server.status()
        return server.said()


def test_it_is_not_served_to_a_network_before_somebody_may_use_it(shop: Path) -> None:
    serve = ("serve", "shop:app", "--host", "0.0.0.0", "--port", "0")
    refused = onceward(*serve, cwd=shop)
    shared = onceward(*serve, "--workers", "2", cwd=shop)
    onceward("tokens", "add", "ci", "shop:app", cwd=shop)
    said, off = (
        banner_of(*serve, *switched, cwd=shop) for switched in ((), ("--dashboard", "off", "--api", "off"))
    )

    for done in (refused, shared):
        assert done.returncode == 2
        assert "Nobody can log in yet" in done.stderr
        assert "onceward users add" in done.stderr
        assert "Traceback" not in done.stderr
    assert "answer as localhost, 127.0.0.1, [::1] only" in said
    assert "REST API" not in off
    assert "dashboard" not in off


def test_workers_share_who_may_look(shop: Path) -> None:
    with running("serve", "shop:app", "--port", "0", "--workers", "2", cwd=shop) as server:
        port = server.port()
        found = re.search(r"\?link=(owl_\S+) ", server.said())
        assert found is not None
        assert server.said().count("?link=") == 1
        same = {
            "Origin": f"http://127.0.0.1:{port}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        told = [
            ask(port, "POST", "/login", urlencode({"link": found[1]}).encode(), same)[0] for _ in range(4)
        ]

    assert sorted(told) == [303, 401, 401, 401]


def test_a_link_is_made_by_hand(shop: Path) -> None:
    made = onceward("users", "link", "shop:app", "--port", "8123", cwd=shop)

    assert re.fullmatch(r"http://127\.0\.0\.1:8123/login\?link=owl_\S+\n", made.stdout)
    assert accounts.LINK_MS == 600_000


def test_an_open_page_does_not_hold_the_end_up(shop: Path) -> None:
    made = onceward("tokens", "add", "ci", "shop:app", cwd=shop)
    headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
    with running("serve", "shop:app", "--port", "0", "--drain", "2s", cwd=shop) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port(), timeout=SECONDS)
        connection.request("GET", "/api/v1/changes", headers=headers)
        reply = connection.getresponse()
        first = reply.read(5)

        server.signal(signal.SIGTERM)
        rest = reply.read()
        status = server.status()
        said = server.said()
        connection.close()

    assert first == b"retry"
    assert rest.endswith(b"\n\n")
    assert status == 0
    assert "Traceback" not in said
