"""Acting by the dashboard, in a real browser, on a real store: every verb, once each, by who may."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from httpx import URL, ASGITransport, AsyncClient, Client
from playwright.sync_api import Page, expect
from starlette.applications import Starlette

from onceward.console.local import LocalConsole
from onceward.console.port import Action, RunQuery
from onceward.console.views import BulkReply
from onceward.web.access import Principal, Role
from onceward.web.dashboard.site import routes
from tests.dashboard.conftest import OpenPage, Serve
from tests.dashboard.everything import RUN_ID, everything
from tests.dashboard.serving import OPERATOR, PREFIX, Site
from tests.dashboard.shop import Shop, shop_in
from tests.helpers import eventually
from tests.web.fake_console import FakeConsole

VIEWER = Principal(name="vera", role=Role.VIEWER, csrf="token-of-vera")


@pytest.fixture
def shop(tmp_path: Path, serve: Serve) -> Shop:
    shop = shop_in(tmp_path)
    shop.site = serve(shop.console)
    return shop


@pytest.fixture
def site(shop: Shop) -> Site:
    assert shop.site is not None
    return shop.site


def press(page: Page, verb: str) -> None:
    """Go from a run's page through the page of an action, and do it."""
    page.get_by_role("navigation", name="What can be done").get_by_role("link", name=verb).click()
    page.get_by_role("button", name=f"{verb} it").click()
    page.wait_for_url(re.compile("[?]did="))


def field(page_text: str, name: str) -> str:
    found = re.search(f'name="{name}" value="([^"]*)"', page_text)
    assert found, name
    return found[1]


def test_a_failed_run_is_retried_and_the_page_follows(shop: Shop, site: Site, open_page: OpenPage) -> None:
    run_id = shop.emit("order.paid", "order-7")
    shop.is_away = False
    page = open_page()
    page.goto(f"{site.url}runs/{run_id}")
    expect(page.locator("#head")).to_contain_text("the payment service is away")
    page.get_by_text("Traceback").first.click()
    expect(page.locator("#head pre")).to_contain_text("ConnectionError")
    page.get_by_role("link", name="Go to the step charge").click()
    expect(page.locator("details.step[open] .failure").first).to_be_in_viewport()
    press(page, "Retry")

    expect(page.locator("h1 .state")).to_have_text("completed")  # without a reload
    expect(page.locator("#kin")).to_contain_text("sam")  # who did it
    assert shop.charged == ["order-7"]


def test_a_run_is_restarted_replayed_and_its_generations_stay(
    shop: Shop, site: Site, open_page: OpenPage
) -> None:
    shop.is_away = False
    run_id = shop.emit("order.paid", "order-7")
    page = open_page()
    page.goto(f"{site.url}runs/{run_id}")
    press(page, "Restart")
    expect(page.get_by_role("navigation", name="Generation")).to_be_visible()
    eventually(lambda: shop.charged == ["order-7"] * 2)
    page.get_by_role("link", name="generation 1").click()
    expect(page.locator("#timeline")).to_contain_text("load order")

    page.get_by_role("navigation", name="What can be done").get_by_role("link", name="Replay").click()
    page.get_by_label("Begin at step").select_option("charge")
    page.get_by_role("button", name="Show its plan").click()
    expect(page.locator("main")).to_contain_text("It begins at charge")
    page.get_by_label("Other payload").fill('{"edited": true}')
    page.get_by_role("button", name="Replay it").click()
    page.wait_for_url(re.compile("did=replay"))
    expect(page.locator("#data")).to_contain_text('"edited": true')
    assert run_id not in page.url
    page.locator("#data").get_by_role("link", name=f"…{run_id[-12:]}").click()
    expect(page.get_by_role("table", name="Replays of it")).to_be_visible()


def test_a_run_whose_steps_were_undone_is_restarted_and_not_retried(
    shop: Shop, site: Site, open_page: OpenPage, client: Client
) -> None:
    run_id = shop.emit("order.reserved", "order-7")
    page = open_page()
    page.goto(f"{site.url}runs/{run_id}")
    verbs = page.get_by_role("navigation", name="What can be done")
    expect(verbs.get_by_role("link", name="Restart")).to_be_visible()
    expect(verbs.get_by_role("link", name="Retry")).to_have_count(0)
    verbs.get_by_text("Not now").click()
    expect(verbs).to_contain_text("retry: steps of it were undone")
    asked = client.get(f"{site.url}runs/{run_id}/retry")
    assert (asked.status_code, "Retry it" in asked.text) == (409, False)
    assert "restart it: every step runs again" in asked.text
    many = client.get(f"{site.url}bulk/ask?verb=retry&problems=1")
    assert "1 of them does not allow it now and will be skipped" in many.text

    page.goto(f"{site.url}dead")
    expect(page.locator("main")).to_contain_text("It was undone: restart it")
    expect(page.get_by_role("link", name="Retry it")).to_have_count(0)
    shop.is_away = False
    page.get_by_role("link", name="Restart it").click()
    page.get_by_role("button", name="Restart it").click()
    eventually(lambda: shop.state(run_id) == "completed")


def test_many_are_restarted_once_it_is_ticked_that_it_may_happen_again(
    shop: Shop, site: Site, open_page: OpenPage
) -> None:
    shop.is_away = False
    for number in range(2):
        shop.emit("order.paid", f"order-{number}")
    page = open_page()
    for is_ticked, told in ((False, "its plan was not acknowledged"), (True, "Done2 runs")):
        page.goto(f"{site.url}bulk/ask?verb=restart&workflow=fulfil&source=emit%2Forder.paid&state=completed")
        expect(page.locator("main")).to_contain_text("2 of the first 2: it would do something outside again")
        if is_ticked:
            page.get_by_label("may happen again").check()
        page.get_by_role("button", name="Restart 2 runs").click()
        expect(page.locator("main")).to_contain_text(told)
        assert len(shop.charged) == 2 or is_ticked
    eventually(lambda: len(shop.charged) == 4)


def test_a_sleeping_run_says_until_when_and_is_cancelled(shop: Shop, site: Site, open_page: OpenPage) -> None:
    run_id = shop.emit("order.slow", "order-8")
    page = open_page()
    page.goto(f"{site.url}runs/{run_id}")
    expect(page.locator(".standing")).to_contain_text(re.compile("in (59 min|1 h)"))
    press(page, "Cancel")

    eventually(lambda: shop.state(run_id) == "cancelled")
    expect(page.locator("h1 .state")).to_have_text("cancelled")


def test_a_run_that_backs_off_says_why_and_one_without_its_key_says_who_has_it(
    shop: Shop, site: Site, client: Client
) -> None:
    tried = shop.emit("tax.due", "order-8")
    page = client.get(f"{site.url}runs/{tried}").text
    assert "Why <code>pay_tax</code> is tried again" in page
    assert "the tax office is closed" in page
    first = shop.emit("stock.changed", "tea")
    second = shop.do(shop.app.emit("stock.changed", {}, subject="tea")).runs[0].run_id
    page = client.get(f"{site.url}runs/{second}").text
    assert f"its key &#39;tea&#39;, which {first} holds" in page
    assert "It has not begun." in page


def test_a_held_run_says_why_and_is_answered(shop: Shop, site: Site, open_page: OpenPage) -> None:
    run_id = shop.emit("order.ready", "order-9")
    page = open_page()
    page.goto(f"{site.url}runs/{run_id}")
    expect(page.locator("#head")).to_contain_text("no key")
    expect(page.locator("#head")).to_contain_text("this event does not tell which")
    page.get_by_role("link", name="Answer", exact=True).click()
    page.get_by_label("fail").check()
    page.get_by_role("button", name="Answer it").click()

    expect(page.locator("h1 .state")).to_have_text("failed")


def test_the_dead_letters_lead_out(shop: Shop, site: Site, open_page: OpenPage) -> None:
    """Grouped, explained, all like one retried at once after a dry run, dismissed one by one."""
    for order in range(4):
        shop.emit("order.paid", f"order-{order}")
    held = shop.emit("order.ready", "order-9")
    shop.is_away = False
    page = open_page()
    page.goto(f"{site.url}dead")
    expect(page.locator(".group")).to_have_count(2)
    expect(page.locator(".group").first).to_contain_text("4 runs")
    page.get_by_role("link", name="Retry all like this").click()
    expect(page.locator("h1")).to_have_text("Retry 4 runs?")
    expect(page.locator("main")).to_contain_text("This was a dry run: 4 runs match.")
    expect(page.locator("main")).to_contain_text("charge, outside again, in 4 of the 4 runs below")
    assert shop.charged == []
    page.get_by_role("button", name="Retry 4 runs").click()
    expect(page.locator("h1")).to_have_text("Retry many: done")
    expect(page.locator("#progress")).to_contain_text("4 runs")

    eventually(lambda: sorted(shop.charged) == [f"order-{order}" for order in range(4)])
    page.goto(f"{site.url}dead")
    expect(page.locator(".group")).to_have_count(1)
    page.get_by_role("link", name="Answer it").click()
    assert held in page.url


def test_how_a_bulk_action_ended_is_known_to_every_process(shop: Shop, site: Site, client: Client) -> None:
    shop.emit("order.paid", "order-7")
    shop.is_away = False
    form = {"csrf": OPERATOR.csrf, "verb": "retry", "problems": "1"}
    client.post(f"{site.url}bulk", data={**form, "request_id": "monday"})
    eventually(lambda: "Retry many: done" in client.get(f"{site.url}bulk/monday").text)

    async def ask() -> str:
        mounted = Starlette(routes=routes(LocalConsole(shop.app), lambda _: OPERATOR))
        transport = ASGITransport(app=mounted)
        async with AsyncClient(transport=transport, base_url="http://shop.example") as elsewhere:
            known, unknown = [await elsewhere.get(f"/bulk/{name}") for name in ("monday", "tuesday")]
            assert (unknown.status_code, unknown.headers["refresh"]) == (404, "3")
            return known.text

    assert "Retry many: done" in shop.do(ask())


def test_a_bulk_action_that_was_interrupted_says_after_how_many(serve: Serve, client: Client) -> None:
    console = FakeConsole()
    told = "Interrupted after 2 of 5: whoever was at it has not been heard of since."
    console.elsewhere["mend"] = [
        BulkReply(
            bulk_id="mend",
            verb="retry",
            is_dry_run=False,
            matched=5,
            done=2,
            reasons=[told],
            is_interrupted=True,
        )
    ]
    page = client.get(f"{serve(console).url}bulk/mend").text

    assert "Retry many: stopped" in page
    assert told in page


def test_the_id_of_another_bulk_action_is_not_taken_for_ones_own(
    shop: Shop, site: Site, client: Client
) -> None:
    shop.emit("order.paid", "order-7")
    other = Action(verb="dismiss", actor="eve", request_id="monday")
    shop.do(LocalConsole(shop.app).bulk(RunQuery(since=0), other, dry_run=False))
    form = {"csrf": OPERATOR.csrf, "verb": "retry", "problems": "1"}
    client.post(f"{site.url}bulk", data={**form, "request_id": "monday"})

    def page() -> str:
        return client.get(f"{site.url}bulk/monday").text

    eventually(lambda: "was used for another bulk action" in page())
    assert "Retry many: done" not in page()


def test_ticked_runs_are_dismissed_together(shop: Shop, site: Site, open_page: OpenPage) -> None:
    for order in range(3):
        shop.emit("order.paid", f"order-{order}")
    page = open_page()
    page.goto(f"{site.url}runs?state=failed")
    for tick in page.locator("input[name=run]").all()[:2]:
        tick.check()
    page.locator("#chosen select").select_option("dismiss")
    page.get_by_role("button", name="The ticked ones (2)").click()
    page.get_by_role("button", name="Dismiss 2 runs").click()
    expect(page.locator("h1")).to_have_text("Dismiss many: done")

    page.goto(f"{site.url}runs?problems=1")
    expect(page.locator("tr[data-row]")).to_have_count(1)


def test_a_delivery_that_could_not_be_read_is_read_again(shop: Shop, site: Site, open_page: OpenPage) -> None:
    async def deliver() -> int:
        transport = ASGITransport(app=shop.app.asgi())
        async with AsyncClient(transport=transport, base_url="http://shop.example") as client:
            return (await client.post("/hooks/carrier", content=b"parcel-1")).status_code

    assert shop.do(deliver()) == 202
    page = open_page(expects="the server responded with a status of 400")
    page.goto(f"{site.url}dead")
    page.get_by_role("table", name="Unparsed deliveries").get_by_role("link").first.click()
    expect(page.locator("main")).to_contain_text("It could not be read")
    expect(page.get_by_role("figure", name="Body Copy")).to_contain_text("parcel-1")
    page.get_by_role("button", name="Read it again").click()
    expect(page.locator(".notice.bad")).to_contain_text("KeyError")
    shop.can_read = True
    page.go_back()
    page.get_by_role("button", name="Read it again").click()

    expect(page.locator(".notice.good")).to_contain_text("parcel-1")
    page.goto(f"{site.url}event?source=carrier&id=parcel-1")
    expect(page.locator("h1")).to_have_text("parcel.moved")
    expect(page.locator("main")).to_contain_text("It started no run")


def test_a_form_sent_twice_acts_once(shop: Shop, site: Site, client: Client) -> None:
    """A double click, a reload of what was sent, a lost reply: the request id is the same."""
    shop.is_away = False
    run_id = shop.emit("order.paid", "order-7")
    address = f"{site.url}runs/{run_id}/replay"
    form = client.get(address).text
    assert "what they do would happen again: <strong>load order, charge</strong>" in form
    data = {"csrf": OPERATOR.csrf, "request_id": field(form, "request_id")}
    data["plan"] = field(form, "plan")
    replies = [client.post(address, data=data).headers["location"] for _ in range(2)]

    new = {re.search("runs/([^?]*)", reply)[1] for reply in replies}  # type: ignore[index]
    assert len(new) == 1
    assert field(client.get(address).text, "request_id") != data["request_id"]


def test_what_a_run_waits_for_is_made_on_its_page(shop: Shop, site: Site, open_page: OpenPage) -> None:
    run_id = shop.emit("order.packing", "order-7")
    page = open_page()
    page.goto(f"{site.url}runs/{run_id}")
    expect(page.locator("#head")).to_contain_text("An event warehouse.packed about order-7, until")
    page.get_by_role("link", name="Make it").click()
    expect(page.locator("main")).to_contain_text("No workflow subscribes to warehouse.packed")
    assert page.get_by_label("Subject, what it is about").input_value() == "order-7"
    page.get_by_label("Payload, as JSON").fill('{"boxes": 2}')
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_role("status").first).to_contain_text("It fits 1 open wait")

    eventually(lambda: shop.state(run_id) == "completed")
    audit = shop.do(LocalConsole(shop.app).audit()).items
    assert [(entry.verb, entry.actor) for entry in audit] == [("emit", "sam")]


def test_an_event_that_starts_something_says_so_before_and_after(
    shop: Shop, site: Site, open_page: OpenPage
) -> None:
    shop.is_away = False
    page = open_page()
    page.goto(f"{site.url}events")
    page.get_by_role("link", name="Make an event").click()
    page.get_by_label("Type").fill("order.paid")
    page.get_by_role("button", name="Who would hear of it?").click()
    expect(page.locator(".notice")).to_contain_text("1 workflow starts a run of it")
    page.get_by_role("button", name="Make it").click()
    expect(page.locator(".notice.good")).to_contain_text("The event is stored")
    expect(page.locator("table").first).to_contain_text("fulfil")


def test_a_promise_is_ended_on_a_page_once(
    shop: Shop, site: Site, open_page: OpenPage, client: Client
) -> None:
    run_id, other = shop.emit("order.large", "order-7"), shop.emit("order.large", "order-8")
    page = open_page()
    page.goto(f"{site.url}runs/{run_id}")
    page.get_by_role("link", name="End it").click()
    page.get_by_label("Value, as JSON").fill('"by sam"')
    page.get_by_role("button", name="End it").click()
    expect(page.locator(".notice.good")).to_contain_text("The promise was completed.")
    eventually(lambda: shop.state(run_id) == "completed")

    address = f"{site.url}runs/{other}/complete"
    data = {"csrf": OPERATOR.csrf, "request_id": "one", "how": "fail"}
    assert client.post(address, data=data).status_code == 400
    assert client.post(address, data={**data, "reason": "nobody came"}).status_code == 303
    eventually(lambda: shop.state(other) == "failed")
    assert client.get(address).status_code == 409


@pytest.mark.parametrize(
    ("principal", "data", "headers", "why"),
    [
        (VIEWER, {"csrf": VIEWER.csrf}, {}, "vera is a viewer"),
        (OPERATOR, {}, {}, "token"),
        (OPERATOR, {"csrf": "another"}, {}, "token"),
        (None, {}, {"Sec-Fetch-Site": "cross-site"}, "another site"),
        (None, {}, {"Sec-Fetch-Site": "same-site"}, "another site"),
        (None, {}, {"Origin": "https://example.invalid"}, "another site"),
        (None, {}, {"Origin": "null"}, "another site"),
    ],
)
def test_a_form_of_who_may_not_does_nothing(
    shop: Shop,
    site: Site,
    principal: Principal | None,
    data: dict[str, str],
    headers: dict[str, str],
    why: str,
    client: Client,
) -> None:
    run_id = shop.emit("order.paid", "order-7")
    site.principal = principal
    for path in (
        f"runs/{run_id}/retry",
        f"runs/{run_id}/complete",
        "emit",
        "bulk",
        "bulk/ask",
        f"deliveries/{run_id}",
    ):
        form = {"request_id": "0", "verb": "retry", "problems": "1", **data}
        reply = client.post(site.url + path, data=form, headers=headers)

        assert (reply.status_code, why in reply.text) == (403, True), path
    assert shop.state(run_id) == "failed"
    assert shop.do(shop.app.run(run_id).row()).attempt == 1


def test_a_viewer_sees_it_all_and_is_offered_nothing(shop: Shop, site: Site, open_page: OpenPage) -> None:
    run_id = shop.emit("order.paid", "order-7")
    site.principal = VIEWER
    page = open_page()
    for path in (f"runs/{run_id}", "runs", "dead", ""):
        page.goto(site.url + path)
        expect(page.locator("form[method=post]")).to_have_count(0)
        expect(page.get_by_role("link", name=re.compile("^(Retry|Restart|Dismiss)"))).to_have_count(0)
    page.goto(f"{site.url}runs/{run_id}")
    expect(page.locator("#head")).to_contain_text("You are a viewer")


def test_what_does_not_apply_is_refused_with_the_reason(shop: Shop, site: Site, client: Client) -> None:
    shop.is_away = False
    run_id = shop.emit("order.paid", "order-7")
    asked = client.get(f"{site.url}runs/{run_id}/retry")
    done = client.post(f"{site.url}runs/{run_id}/retry", data={"csrf": OPERATOR.csrf, "request_id": "one"})

    assert (asked.status_code, done.status_code) == (409, 409)
    assert "nothing failed; use restart or replay" in asked.text


def test_a_payload_that_is_not_json_is_refused_and_nothing_happens(
    shop: Shop, site: Site, client: Client
) -> None:
    shop.is_away = False
    run_id = shop.emit("order.paid", "order-7")
    data = {"csrf": OPERATOR.csrf, "request_id": "one"}
    for payload in ("{", "NaN", "[" * 100_000):
        reply = client.post(f"{site.url}runs/{run_id}/replay", data={**data, "payload": payload})
        assert (reply.status_code, "is not JSON" in reply.text) == (400, True)

    assert len(shop.do(shop.app.runs())) == 1


def test_addresses_that_lead_nowhere_say_so(shop: Shop, site: Site, client: Client) -> None:
    for path, status in {
        "runs/run_nothing": 404,
        "runs/run_nothing/retry": 404,
        "runs/run_nothing/explode": 404,
        "deliveries/nothing": 404,
        "bulk/nothing": 404,
        "event?source=a&id=b": 404,
        "event": 400,
        "runs?state=lost": 400,
        "runs?colour=red": 400,
        "runs?since=yesterday": 400,
        "bulk/ask?verb=retry": 400,
        "bulk/ask?verb=explode&problems=1": 400,
        "nothing": 404,
        "static/0/onceward.css": 404,
    }.items():
        assert client.get(site.url + path).status_code == status, path


def crawl(site: Site, client: Client) -> dict[str, int]:
    """Follow every link from the first page on; give each kind of address with its status."""
    seen: dict[str, int] = {}
    waiting = [site.url]
    while waiting:
        address = waiting.pop()
        kind = re.sub("=[^&]*", "", address)  # pages are alike that differ in what is asked of them
        if kind in seen or "/static/" in address:
            continue
        reply = client.get(address, follow_redirects=True)
        seen[kind] = reply.status_code
        for link in re.findall(r'(?:href|action)="([^"#]*)"', reply.text):
            joined = str(URL(address).join(link.replace("&amp;", "&")))
            assert joined.startswith(site.url), (address, link)
            waiting.append(joined)
    # Forms that are only posted to are no pages.
    return {kind: status for kind, status in seen.items() if not kind.endswith(("/bulk", "/bulk/ask"))}


def test_every_link_between_pages_leads_somewhere(shop: Shop, site: Site, client: Client) -> None:
    """From any depth, below any prefix."""
    shop.emit("order.paid", "order-7")
    shop.emit("order.ready", "order-9")
    seen = crawl(site, client)

    assert len(seen) > 40
    assert {address: status for address, status in seen.items() if status != 200} == {}
    assert PREFIX in site.url


@pytest.mark.postgres
def test_every_page_stands_on_postgresql_too(postgres_store: str, serve: Serve, client: Client) -> None:
    shop = Shop(postgres_store)
    shop.site = serve(shop.console)
    run_id = shop.emit("order.paid", "order-7")
    shop.emit("order.ready", "order-9")
    shop.emit("order.slow", "order-8")
    seen = crawl(shop.site, client)
    assert {address: status for address, status in seen.items() if status != 200} == {}

    shop.is_away = False
    form = {"csrf": OPERATOR.csrf, "request_id": "one"}
    assert client.post(f"{shop.site.url}runs/{run_id}/retry", data=form).status_code == 303
    eventually(lambda: shop.state(run_id) == "completed")


@pytest.mark.parametrize(
    ("answer", "result", "output", "printed"),
    [
        ("happened", '"label 7"', "label 7", []),
        ("did_not_happen", "", "label of order-7", ["label of order-7"]),
    ],
)
def test_an_unknown_outcome_is_asked_for_and_the_answer_is_what_the_run_goes_on_with(
    shop: Shop, site: Site, open_page: OpenPage, answer: str, result: str, output: str, printed: list[str]
) -> None:
    run_id = shop.emit("order.labelled", "order-7")
    shop.is_away = False
    page = open_page()
    page.goto(f"{site.url}dead")
    expect(page.locator(".group")).to_contain_text("nobody knows how it ended")
    page.get_by_role("link", name="Answer it").click()
    expect(page.locator("main")).to_contain_text("Did print_label take effect?")
    expect(page.locator("figure", has_text="What it was called with")).to_contain_text("order-7")
    page.get_by_role("radio", name=re.compile(f"^{answer} ")).check()
    if result:
        page.get_by_label("What it returned").fill(result)
    page.get_by_role("button", name="Answer it").click()

    expect(page.locator("h1 .state")).to_have_text("completed")
    expect(page.get_by_role("figure", name="Output").last).to_contain_text(output)
    assert shop.charged == printed
    assert shop.state(run_id) == "completed"


def test_a_restart_shows_what_happens_again_and_does_what_was_looked_at(
    shop: Shop, site: Site, open_page: OpenPage
) -> None:
    shop.is_away = False
    run_id = shop.emit("order.paid", "order-7")
    page = open_page()
    page.goto(f"{site.url}runs/{run_id}/restart")
    expect(page.locator("main")).to_contain_text(
        "These steps act outside, or nothing says otherwise (effect= of a step does), "
        "and what they do would happen again: load order, charge"
    )
    page.get_by_label("Begin at step").select_option("charge")
    page.get_by_role("button", name="Show its plan").click()
    row = page.get_by_role("table", name="What becomes of each step").locator("tr", has_text="load order")
    expect(row).to_contain_text("kept")
    page.get_by_text("As curl", exact=True).click()
    expect(page.locator(".curl pre")).to_contain_text('{"from_step": "charge"}')
    page.get_by_role("button", name="Restart it").click()
    page.wait_for_url("**did=restart*")

    eventually(lambda: shop.charged == ["order-7"] * 2)
    expect(page.locator("#timeline")).to_contain_text("copied")


def test_a_plan_that_is_no_longer_true_is_refused(shop: Shop, site: Site, client: Client) -> None:
    shop.is_away = False
    run_id = shop.emit("order.paid", "order-7")
    page = client.get(f"{site.url}runs/{run_id}/restart").text
    form = {"csrf": OPERATOR.csrf, "plan": field(page, "plan"), "request_id": "one"}
    assert client.post(f"{site.url}runs/{run_id}/restart", data=form).status_code == 303
    eventually(lambda: shop.state(run_id) == "completed")

    late = client.post(f"{site.url}runs/{run_id}/restart", data={**form, "request_id": "two"})
    assert late.status_code == 409
    eventually(lambda: shop.charged == ["order-7"] * 2)


def test_a_question_is_asked_with_all_that_is_known_and_answered(open_page: OpenPage, serve: Serve) -> None:
    console = everything(str)
    detail = console.answers["run"]
    question = {
        "why": "its process was lost",
        "arguments": '{"order": "o-7"}',
        "answers": ["happened", "fail"],
    }
    steps = [msgspec.structs.replace(detail.steps[0], label="charge", question=question)]
    console.answers["run"] = msgspec.structs.replace(detail, steps=steps)
    page = open_page()
    page.goto(f"{serve(console).url}runs/{detail.run.run_id}")
    expect(page.get_by_role("region", name="A question about charge")).to_contain_text("o-7")
    page.get_by_role("link", name="Answer it").click()
    expect(page.get_by_role("radio")).to_have_count(2)
    page.get_by_role("radio", name="happened").check()
    page.get_by_label("What it returned").fill('{"id": "ch_1"}')
    page.get_by_role("button", name="Answer it").click()
    page.wait_for_url("**did=answer*")

    ((run_id, action),) = console.acted
    assert (run_id, action.verb, action.answer, action.step) == (
        detail.run.run_id,
        "answer",
        "happened",
        "charge",
    )
    assert (action.result, action.actor, action.plan) == ({"id": "ch_1"}, "sam", "token")


def test_the_plan_is_shown_before_and_sent_with_the_deed(open_page: OpenPage, serve: Serve) -> None:
    console = everything(str)
    page = open_page()
    page.goto(f"{serve(console).url}runs/{RUN_ID}/restart")
    label = console.answers["run"].steps[0].label
    page.get_by_text("Or run only some").click()
    page.get_by_role("checkbox").first.check()
    page.get_by_role("button", name="Show its plan").click()
    expect(page.locator("main")).to_contain_text(f"It runs again: {label}")
    expect(page.locator("main")).to_contain_text("what they do would happen again: step")
    expect(page.get_by_role("table", name="What becomes of each step")).to_contain_text("fate")
    page.get_by_role("button", name="Restart it").click()
    page.wait_for_url("**did=restart*")

    ((_, action),) = console.acted
    assert (action.plan, action.drop, action.from_step) == ("token", [label], None)
    asked = [question[1] for name, question in console.asked if name == "plan"]
    assert [(question.verb, question.drop) for question in asked] == [("restart", None), ("restart", [label])]
