"""The login: what lets somebody in, what does not, and what a browser is never made to do."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from onceward.core.credentials import Kind
from onceward.core.errors import BodyMalformed, ConfigError, NotFound, StoreUnavailable
from onceward.testing.servers import PostgresAddress, unique_name
from onceward.web.access import Role
from onceward.web.auth import accounts, guard, login, passwords, secrets
from onceward.web.auth.hosts import Hosts
from onceward.web.auth.limiter import Failures
from onceward.web.auth.passwords import Cost
from tests.stores.factories import Postgres, SqliteFile
from tests.web.site_world import BASE, CHEAP, PASSWORD, SAME_SITE, Browser, World

V1 = "/api/v1"
WRONG = "The name or the password is wrong."


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


# --- coming in ----------------------------------------------------------------------------------


async def the_whole_way(world: World) -> None:
    browser = await world.browser("ann", "operator")
    assert (await browser.get("/")).status_code == 200
    assert (await browser.get(f"{V1}/counts")).status_code == 200
    assert (
        await browser.post("/runs/a", {"csrf": browser.csrf, "said": "hello"})
    ).text == "page /runs/a hello"

    cookie = browser.cookie
    done = await browser.post("/logout")

    assert (done.status_code, done.headers["location"]) == (303, "./login")
    assert browser.cookie == ""
    browser.client.cookies.set("onceward_test", cookie, domain="127.0.0.1")
    assert (await browser.client.get(f"{V1}/counts")).status_code == 401
    assert world.verbs() == ["login", "logout"]


@pytest.mark.anyio
async def test_a_user_logs_in_acts_and_logs_out_on_sqlite(tmp_path: Path) -> None:
    world = World(SqliteFile(tmp_path / "onceward.db"))
    await the_whole_way(world)
    world.close()


@pytest.mark.postgres
@pytest.mark.anyio
async def test_a_user_logs_in_acts_and_logs_out_on_postgres(postgres_server: PostgresAddress) -> None:
    name = unique_name()
    world = World(Postgres(postgres_server.create_database(name)))
    await the_whole_way(world)
    world.close()
    postgres_server.drop_database(name)


@pytest.mark.anyio
async def test_a_browser_is_sent_to_the_login_and_back(world: World) -> None:
    world.user()
    browser = Browser(world)

    sent = await browser.get("/runs/a?b=c")
    back = await browser.log_in(next="/runs/a?b=c")

    assert (sent.status_code, sent.headers["location"]) == (303, "../login?next=%2Fruns%2Fa%3Fb%3Dc")
    assert (back.status_code, back.headers["location"]) == (303, "./runs/a?b=c")


@pytest.mark.anyio
@pytest.mark.parametrize(
    "wanted",
    ["//evil.example", "https://evil.example/", "\\\\evil", "javascript:alert(1)", "/a\r\nX: y", "/\x00"],
)
async def test_a_login_leads_nowhere_else(world: World, wanted: str) -> None:
    world.user()
    reply = await Browser(world).log_in(next=wanted)

    assert reply.headers["location"].startswith("./")
    assert httpx.URL(f"{BASE}/login").join(reply.headers["location"]).host == "127.0.0.1"
    assert "x" not in reply.headers


@pytest.mark.anyio
async def test_a_program_is_told_and_not_sent_to_a_page(world: World) -> None:
    async with world.client() as client:
        replies = [
            await client.get("/"),
            await client.post("/runs/a", headers={"Accept": "text/html"}),
            await client.get("/", headers={"Accept": "text/html", "Authorization": "Bearer x"}),
        ]

    assert [reply.status_code for reply in replies] == [401] * 3


@pytest.mark.anyio
async def test_wrong_name_and_wrong_password_get_the_same_words(world: World) -> None:
    world.user("ann")
    replies = [
        await Browser(world).log_in(name, password)
        for name, password in [("ann", "wrong"), ("bob", "wrong"), ("", ""), ("ann", ""), ("'--", PASSWORD)]
    ]

    texts = {re.sub(r'value="[^"]*"', "", reply.text) for reply in replies}
    assert len(texts) == 1
    assert WRONG in texts.pop()
    assert {reply.status_code for reply in replies} == {401}
    assert not any(reply.headers.get("set-cookie") for reply in replies)
    assert world.verbs() == ["login_refused"] * 5
    assert {row.actor for row in world.store.audits("")} == {"test", "ann", "unknown"}


def test_an_unknown_name_costs_the_same_work(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.user("ann")
    hashed: list[Cost] = []
    real = hashlib.scrypt

    def counted(*args: Any, **how: Any) -> bytes:
        hashed.append(Cost(how["n"], how["r"], how["p"]))
        return real(*args, **how)

    passwords.of_nobody(CHEAP)
    monkeypatch.setattr(hashlib, "scrypt", counted)
    for name in ("ann", "bob", "no such name at all!"):
        assert world.accounts.by_password(name, "wrong", detail="") is None

    assert hashed == [CHEAP] * 3


@pytest.mark.anyio
async def test_nothing_of_a_password_or_a_token_is_stored(world: World) -> None:
    browser = await world.browser("ann")
    token = world.token("viewer")["Authorization"].removeprefix("Bearer ")
    link = world.accounts.add_link(actor="test")

    stored = repr(world.store.dump("credential", "session", "audit"))

    for secret in (PASSWORD, browser.cookie, token, token[17:], link, link[17:]):
        assert len(secret) > 10
        assert secret not in stored
        assert secret not in repr(world.store.credentials())


@pytest.mark.anyio
async def test_what_was_typed_as_a_name_is_not_kept_unless_it_is_one(world: World) -> None:
    world.user("ann")
    await Browser(world).log_in(PASSWORD, "ann")
    await Browser(world).log_in("ann", "wrong")

    refused = [row for row in world.store.audits("") if row.verb == "login_refused"]
    assert [row.actor for row in sorted(refused, key=lambda row: row.audit_id)] == ["unknown", "ann"]


# --- sessions -----------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_session_of_before_is_not_gone_on_with(world: World) -> None:
    world.user()
    browser = Browser(world)
    browser.client.cookies.set("onceward_test", "chosen-by-somebody-else", domain="127.0.0.1")
    await browser.log_in()
    first = browser.cookie
    await browser.log_in()

    assert first != "chosen-by-somebody-else"
    assert browser.cookie != first
    assert world.accounts.by_cookie(first) is None
    assert world.accounts.by_cookie("chosen-by-somebody-else") is None


@pytest.mark.anyio
@pytest.mark.parametrize("over", ["idle", "old", "password", "role", "removed"])
async def test_a_session_is_over(world: World, over: str) -> None:
    browser = await world.browser("ann")
    if over == "idle":
        world.now += accounts.IDLE_MS
    elif over == "old":
        for _ in range(accounts.AGE_MS // accounts.IDLE_MS * 2):
            world.now += accounts.IDLE_MS // 2
            await browser.get(f"{V1}/counts")
    elif over == "password":
        world.accounts.set_password("ann", "another password", actor="test")
    elif over == "role":
        world.accounts.set_role("ann", Role.VIEWER, actor="test")
    else:
        world.accounts.remove_user("ann", actor="test")

    assert (await browser.client.get(f"{V1}/counts")).status_code == 401


@pytest.mark.anyio
async def test_a_session_that_is_used_goes_on(world: World) -> None:
    browser = await world.browser("ann")
    for _ in range(6):
        world.now += accounts.IDLE_MS // 2
        assert (await browser.get(f"{V1}/counts")).status_code == 200


@pytest.mark.anyio
@pytest.mark.parametrize(("scheme", "secure"), [("http", False), ("https", True)])
async def test_the_cookie_is_for_us_alone(world: World, scheme: str, secure: bool) -> None:
    world.user()
    base = f"{scheme}://127.0.0.1:8000"
    async with world.client(base=base) as client:
        headers = {"Origin": base, "Sec-Fetch-Site": "same-origin"}
        reply = await client.post("/login", data={"name": "ann", "password": PASSWORD}, headers=headers)

    cookie = reply.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=Lax", "Path=/"))
    assert ("Secure" in cookie, cookie.startswith("__Host-")) == (secure, secure)
    assert "Domain" not in cookie


@pytest.mark.anyio
async def test_what_a_known_proxy_says_makes_the_cookie_secure() -> None:
    told = []
    for proxies in (None, "127.0.0.1"):
        world = World(proxies=proxies, hosts="runs.example.com")
        world.user()
        headers = {
            "Origin": "https://runs.example.com",
            "X-Forwarded-Proto": "https",
            "X-Forwarded-Host": "runs.example.com",
            "Host": "runs.example.com" if proxies is None else "inside",
        }
        reply = await Browser(world).log_in(headers=headers)
        told.append("Secure" in reply.headers["set-cookie"])
        world.close()

    assert told == [False, True]


# --- links --------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_link_works_once(world: World) -> None:
    link = world.accounts.add_link(actor="test")
    browser = Browser(world)

    looked = await browser.get(f"/login?link={link}")
    await browser.get(f"/login?link={link}")
    first = await browser.log_in("", "", link=link)
    second = await Browser(world).log_in("", "", link=link)

    assert f'name="link" value="{link}"' in looked.text
    assert (first.status_code, second.status_code) == (303, 401)
    assert (await browser.get("/")).status_code == 200
    who = world.accounts.by_cookie(browser.cookie)
    assert who is not None
    assert (who.name, who.role) == ("local", Role.ADMIN)
    assert world.verbs() == ["link_used", "login", "login_refused"]


@pytest.mark.anyio
async def test_a_link_works_for_a_while(world: World) -> None:
    link = world.accounts.add_link(actor="test")
    world.now += accounts.LINK_MS

    assert (await Browser(world).log_in("", "", link=link)).status_code == 401
    world.accounts.add_link(actor="test")
    assert len(world.accounts.all_of(Kind.LINK)) == 1


@pytest.mark.anyio
async def test_a_token_is_no_link_and_a_link_no_token(world: World) -> None:
    token = world.token("admin")["Authorization"].removeprefix("Bearer ")
    link = world.accounts.add_link(actor="test")

    assert (await Browser(world).log_in("", "", link=token)).status_code == 401
    async with world.client() as client:
        reply = await client.get(f"{V1}/counts", headers={"Authorization": f"Bearer {link}"})
    assert reply.status_code == 401


# --- what another site makes a browser do ---------------------------------------------------------

ACTS = ["/runs/a", f"{V1}/runs/run_1/retry", "/logout"]


@pytest.mark.anyio
@pytest.mark.parametrize("path", ACTS)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": BASE, "Sec-Fetch-Site": "cross-site"},
    ],
)
async def test_another_site_cannot_act(world: World, path: str, headers: dict[str, str]) -> None:
    browser = await world.browser("ann", "admin")

    reply = await browser.post(path, {"csrf": browser.csrf}, headers)

    assert (reply.status_code, reply.json()["code"]) == (403, "forbidden")
    assert world.console.asked == []
    assert (await browser.get("/")).status_code == 200


@pytest.mark.anyio
@pytest.mark.parametrize("path", ACTS)
@pytest.mark.parametrize("shown", [None, "", "made-up", "another's"])
async def test_a_form_without_the_sessions_secret_does_nothing(
    world: World, path: str, shown: str | None
) -> None:
    browser = await world.browser("ann", "admin")
    if shown == "another's":
        shown = (await world.browser("bob", "admin")).csrf

    fields = {} if shown is None else {"csrf": shown}
    by_form = await browser.post(path, fields)
    by_header = await browser.client.post(
        path,
        content=b"{}",
        headers={**SAME_SITE, "Content-Type": "application/json", "X-CSRF-Token": shown or ""},
    )
    by_query = await browser.client.post(f"{path}?csrf={browser.csrf}", headers=SAME_SITE)

    assert [one.status_code for one in (by_form, by_header, by_query)] == [403] * 3
    assert world.console.asked == []


@pytest.mark.anyio
async def test_a_script_of_ours_acts_with_the_secret_in_a_header(world: World) -> None:
    browser = await world.browser("ann", "operator")
    headers = {**SAME_SITE, "X-CSRF-Token": browser.csrf, "Content-Type": "application/json"}

    reply = await browser.client.post(f"{V1}/runs/run_1/retry", content=b"{}", headers=headers)

    assert reply.status_code == 200
    assert world.console.acted[0][1].actor == "ann"


@pytest.mark.anyio
async def test_a_token_needs_no_secret_of_a_session(world: World) -> None:
    async with world.client() as client:
        reply = await client.post(
            f"{V1}/runs/run_1/retry",
            json={},
            headers={**world.token(), "Origin": "https://elsewhere.example"},
        )

    assert reply.status_code == 200


@pytest.mark.anyio
async def test_another_site_cannot_log_a_browser_in(world: World) -> None:
    world.user()
    reply = await Browser(world).log_in(headers={"Origin": "https://evil.example"})

    assert reply.status_code == 403
    assert world.verbs() == []


@pytest.mark.anyio
async def test_a_form_that_is_too_large_is_refused(world: World) -> None:
    browser = await world.browser("ann")
    reply = await browser.post("/runs/a", {"csrf": browser.csrf, "said": "a" * 20_000})

    assert reply.status_code == 413


@pytest.mark.anyio
async def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_SECONDS_MAX", 0.01)

    async def never() -> dict[str, Any]:
        return await asyncio.Event().wait()  # type: ignore[return-value]

    with pytest.raises(BodyMalformed, match="too long"):
        await guard.read_body(never, 10)


# --- names of the server --------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("hosts", "host", "status"),
    [
        (None, "127.0.0.1:8000", 200),
        (None, "localhost", 200),
        (None, "LOCALHOST:1", 200),
        (None, "[::1]:8000", 200),
        (None, "evil.example", 421),
        (None, "127.0.0.1.evil.example", 421),
        (None, "localhost.evil.example", 421),
        (None, "", 421),
        (None, "localhost@evil.example", 421),
        (None, "localhost:80:90", 421),
        ("runs.example.com", "runs.example.com", 200),
        ("runs.example.com", "runs.example.com.", 200),
        ("runs.example.com", "xruns.example.com", 421),
        ("runs.example.com", "runs.example.com.evil", 421),
        ("*.example.com", "a.b.example.com", 200),
        ("*.example.com", "example.com", 421),
        ("*.example.com", "aexample.com", 421),
        ("*", "anything.example", 200),
    ],
)
async def test_only_its_own_names_are_answered_to(hosts: str | None, host: str, status: int) -> None:
    world = World(hosts=hosts)
    async with world.client() as client:
        headers = {**world.token("admin"), "Host": host}
        replies = [await client.get(path, headers=headers) for path in (f"{V1}/counts", "/", "/login")]
    world.close()

    assert [reply.status_code for reply in replies] == [status] * 3


def test_the_address_that_is_listened_on_is_a_name() -> None:
    assert Hosts(listening="192.0.2.7").allows("192.0.2.7:8000")
    assert Hosts(listening="2001:db8::1").allows("[2001:db8::1]:8000")
    assert Hosts(listening="box.lan").allows("box.lan")
    assert not Hosts(listening="0.0.0.0").allows("0.0.0.0")
    assert not Hosts(listening="192.0.2.7").allows("192.0.2.8")


@pytest.mark.parametrize("named", ["https://a.example", "a.example/x", "*a.example", "a b/c", "a..*"])
def test_what_is_no_name_is_refused(named: str) -> None:
    with pytest.raises(ConfigError, match="allowed_hosts"):
        Hosts(named)


# --- how often ------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_an_address_that_fails_too_often_waits_though_it_is_right_then(world: World) -> None:
    world.user("ann")
    told = [
        (await Browser(world).log_in(f"user-{number}", "wrong")).status_code
        for number in range(login.OF_ADDRESS_MAX)
    ]

    late = await Browser(world).log_in("ann")

    assert told == [401] * login.OF_ADDRESS_MAX
    assert late.status_code == 429
    assert 0 < int(late.headers["retry-after"]) <= login.WINDOW_S


@pytest.mark.anyio
async def test_a_name_is_not_guessed_at_from_everywhere() -> None:
    world = World(proxies="127.0.0.1")
    world.user("ann")
    told = []
    for number in range(login.OF_NAME_MAX + 1):
        headers = {**SAME_SITE, "X-Forwarded-For": f"6.6.6.6, 192.0.2.{number}"}
        told.append((await Browser(world).log_in("Ann", "wrong", headers=headers)).status_code)
    other = await Browser(world).log_in(
        "bob", "wrong", headers={**SAME_SITE, "X-Forwarded-For": "192.0.2.99"}
    )
    world.close()

    assert told == [401] * login.OF_NAME_MAX + [429]
    assert other.status_code == 401


@pytest.mark.anyio
async def test_the_right_password_in_time_begins_anew(world: World) -> None:
    world.user("ann")
    for _ in range(login.OF_ADDRESS_MAX - 1):
        await Browser(world).log_in("ann", "wrong")
    assert (await Browser(world).log_in("ann")).status_code == 303

    assert (await Browser(world).log_in("ann", "wrong")).status_code == 401
    assert (await Browser(world).log_in("ann")).status_code == 303


def test_failures_are_forgotten_in_time_and_space() -> None:
    now = [0.0]
    failures = Failures(2, 10.0, lambda: now[0], keys_max=3)
    for key in "aab":
        failures.note(key)
    assert (failures.wait_of("a"), failures.wait_of("b"), failures.wait_of("c")) == (10.0, 0.0, 0.0)

    now[0] = 10.0
    assert failures.wait_of("a") == 0.0
    for key in "cdefgh":
        failures.note(key)
    assert len(failures) == 3


@pytest.mark.parametrize(
    ("peer", "same", "other"),
    [
        ("192.0.2.7", "::ffff:192.0.2.7", "192.0.2.8"),
        ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"),
        ("", "", "x"),
    ],
)
def test_one_household_is_one_address(peer: str, same: str, other: str) -> None:
    assert login._network(peer) == login._network(same) != login._network(other)


# --- users and tokens -------------------------------------------------------------------------------


def test_a_password_is_known_again_and_no_other() -> None:
    kept = passwords.hashed("pässword", b"salt" * 4, CHEAP)

    assert passwords.is_match("pässword", kept)
    assert passwords.is_match("pa\u0308ssword", kept)
    assert not passwords.is_match("passwort", kept)
    assert not any(passwords.is_match("pässword", wrong) for wrong in ("", "a$b", kept + "$", kept[:-4]))


@pytest.mark.parametrize("password", ["", "short", "a" * 2_000])
def test_a_password_that_is_none_is_refused(world: World, password: str) -> None:
    with pytest.raises(ConfigError, match="10 characters"):
        world.accounts.add_user("ann", Role.VIEWER, password, actor="test")


@pytest.mark.parametrize("name", ["", "a b", "<b>", "a" * 101, "-a", "token:a", "ä", "a\n"])
def test_a_name_that_is_none_is_refused(world: World, name: str) -> None:
    adds: list[Callable[[], object]] = [
        lambda: world.accounts.add_user(name, Role.VIEWER, PASSWORD, actor="test"),
        lambda: world.accounts.add_token(name, Role.VIEWER, actor="test"),
    ]
    for add in adds:
        with pytest.raises(ConfigError, match="cannot be used"):
            add()


def test_changes_are_in_the_audit_with_who_made_them(world: World) -> None:
    made = world.accounts
    made.add_user("ann", Role.VIEWER, PASSWORD, actor="root")
    made.set_password("ann", PASSWORD + "!", actor="root")
    made.set_role("ann", Role.ADMIN, actor="root")
    made.remove_user("ann", actor="root")
    made.add_token("ci", Role.VIEWER, actor="root")
    made.revoke_token("ci", actor="root")

    assert world.verbs() == [
        *("user_added", "user_password", "user_role", "user_removed", "token_added", "token_revoked"),
    ]
    assert {row.actor for row in world.store.audits("")} == {"root"}


def test_what_is_not_there_is_not_changed(world: World) -> None:
    changes: list[Callable[[], None]] = [
        lambda: world.accounts.set_password("ann", PASSWORD, actor="test"),
        lambda: world.accounts.set_role("ann", Role.ADMIN, actor="test"),
        lambda: world.accounts.remove_user("ann", actor="test"),
        lambda: world.accounts.revoke_token("ci", actor="test"),
    ]
    for change in changes:
        with pytest.raises(NotFound):
            change()
    assert world.store.audits("") == []


def test_a_name_is_given_once(world: World) -> None:
    world.user("ann")
    world.token("viewer", "ci")
    with pytest.raises(ConfigError, match="already"):
        world.user("ann")
    with pytest.raises(ConfigError, match="already"):
        world.token("admin", "ci")


@pytest.mark.anyio
async def test_the_use_of_a_token_is_noted_roughly(world: World) -> None:
    headers = world.token("viewer", "ci")
    told = []
    async with world.client() as client:
        for _ in range(3):
            await client.get(f"{V1}/counts", headers=headers)
            told.append(world.accounts.all_of(Kind.TOKEN)[0].used_at)
            world.now += accounts.GRAIN_MS - 1

    first = told[0]
    assert first is not None
    assert told == [first, first, first + 2 * (accounts.GRAIN_MS - 1)]


def test_a_store_with_nobody_is_known(world: World) -> None:
    assert world.accounts.is_empty()
    world.accounts.add_link(actor="test")
    world.token("viewer", "ci", lasts_ms=5)
    assert not world.accounts.is_empty()
    world.now += 5
    assert world.accounts.is_empty()


def test_secrets_are_long_and_never_the_same() -> None:
    drawn = {secrets.draw(Kind.TOKEN, os.urandom).text for _ in range(1_000)}
    assert len(drawn) == 1_000
    for text in drawn:
        found = secrets.read(text)
        assert found is not None
        assert found[0] is Kind.TOKEN
        assert len(text) == len("owt_") + secrets.ID_CHARS + 1 + 43


# --- when the store is away -------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_store_that_is_away_lets_nobody_in_and_says_nothing_of_itself(world: World) -> None:
    headers = world.token("admin")

    def away(*_: object) -> None:
        raise StoreUnavailable("postgresql://user@secret-host cannot be reached.")

    world.accounts.by_token = away  # type: ignore[method-assign, assignment]
    async with world.client() as client:
        reply = await client.get(f"{V1}/counts", headers=headers)

    assert (reply.status_code, reply.json()["code"]) == (503, "store_unavailable")
    assert "secret-host" not in reply.text


# --- below a prefix ---------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_the_login_works_below_a_prefix(world: World) -> None:
    world.user()
    app = Starlette(routes=[Mount("/ops", world.site)])
    async with world.client(app) as client:
        sent = await client.get("/ops/runs/a", headers={"Accept": "text/html"})
        page = await client.get("/ops/login")
        style = await client.get("/ops/login.css")
        done = await client.post("/ops/login", data={"name": "ann", "password": PASSWORD}, headers=SAME_SITE)
        home = await client.get("/ops/", headers={"Accept": "text/html"})

    assert httpx.URL(f"{BASE}/ops/runs/a").join(sent.headers["location"]).path == "/ops/login"
    assert 'action="./login"' in page.text
    assert style.headers["content-type"].startswith("text/css")
    assert httpx.URL(f"{BASE}/ops/login").join(done.headers["location"]).path == "/ops/"
    assert home.status_code == 200


@pytest.mark.anyio
@pytest.mark.parametrize("nasty", ['"><script>alert(1)</script>', "'; drop", "\u2028</form>"])
async def test_what_was_typed_is_shown_as_text(world: World, nasty: str) -> None:
    typed = await Browser(world).log_in(nasty, "x", next=nasty)
    linked = await Browser(world).get(f"/login?link={nasty}&next={nasty}")

    for page in (typed.text, linked.text):
        assert "<script" not in page
        assert page.count("</form>") == 1
