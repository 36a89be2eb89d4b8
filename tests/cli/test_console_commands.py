"""The commands that look at runs and steer them: what they print, and with which status they end."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from onceward import Context, OutcomeUnknown, refusals
from onceward.cli.main import main
from tests.console.shop import Shop
from tests.engine.running import run_app
from tests.helpers import eventually_async
from tests.pages import call

BODY = b'{"id": "evt_1", "type": "invoice.paid", "data": {"client_secret": "pi_s"}}'


class Told:
    """What a command printed, and its status."""

    def __init__(self, *arguments: str, url: str, columns: int | None = 80, stdin: str = "") -> None:
        env = {"ONCEWARD_STORE": url, "COLUMNS": None if columns is None else str(columns), "NO_COLOR": "1"}
        done = CliRunner(env=env).invoke(main, list(arguments), prog_name="onceward", input=stdin)
        self.status, self.text, self.errors = done.exit_code, done.stdout, done.stderr

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def plain(self) -> str:
        """Give the text without what differs each time: ids, times, lengths; and ends of lines."""
        text = re.sub(r"\b(run|del|p)_[0-9a-z]+", lambda match: f"{match[1]}_…", self.text)
        text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
        text = re.sub(r"\bow_[0-9a-f]{40}\b", "ow_KEY", text)
        text = re.sub(r"\b(in )?[\d.]+ (ms|s|min|h|d)( ago)?\b|\bnow\b", "WHEN", text)
        text = re.sub(r" *[█┄─▸][█┄─▸ ]*", "  ", text)
        return "\n".join(line.rstrip() for line in text.splitlines())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """A store with runs of every kind that lie still, and their ids; no test changes them."""
    url = f"sqlite:///{tmp_path_factory.mktemp('cli') / 'shop.db'}"
    shop = Shop(url)
    found: dict[str, str] = {}

    async def scenario() -> None:
        for number in range(3):
            found[f"failed-{number}"] = await shop.failed(f"order-{number}", subject=f"customer-{number}")
        found["completed"] = await shop.completed("order-seen")
        found["waiting"] = (await shop.app.start(shop.parent)).run_id
        await shop.stands(found["waiting"], "waiting")
        (child,) = (await shop.console.run(found["waiting"])).children
        found["asleep"] = child.run_id
        await shop.stands(child.run_id, "sleeping")
        headers = shop.stripe.sign(BODY, shop.app.worker.now_ms())
        await call(shop.app.asgi(), "POST", "/hooks/stripe", headers, BODY)

    run_app(shop.app, scenario)
    return url, found


@pytest.fixture
def own(sqlite_url: str) -> tuple[str, list[str]]:
    """A store of the test's own with four failed runs."""
    shop = Shop(sqlite_url)

    async def scenario() -> list[str]:
        return [await shop.failed(f"order-{number}") for number in range(4)]

    return sqlite_url, run_app(shop.app, scenario)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


World = tuple[str, dict[str, str]]


def test_runs_are_listed_in_eighty_columns(world: World) -> None:
    url, _ = world
    told = Told("runs", "list", "--workflow", "charge", "--limit", "2", url=url)

    assert told.status == 0
    assert all(len(line) <= 80 for line in told.text.splitlines())
    assert "…" in told.text
    assert told.plain.splitlines()[0].split() == ["RUN", "STATE", "WORKFLOW", "ACCEPTED"]
    assert [line.split()[:3] for line in told.plain.splitlines()[2::2]] == [["run_…", "failed", "charge"]] * 2
    assert told.plain.splitlines()[1].split() == ["ABOUT"]
    assert all(re.match(r"  customer-\d; \S.{50,}", line) for line in told.plain.splitlines()[3::2])
    assert "--after run_" in told.errors


def test_a_pipe_gets_whole_lines_and_whole_times(world: World) -> None:
    url, found = world
    told = Told("runs", "list", "--state", "failed", "--error", "order-1", url=url, columns=None)

    (_, line) = told.text.splitlines()
    assert line.startswith(found["failed-1"])
    assert line.rstrip().endswith("password=[redacted]")
    assert re.search(r" \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", line)


def test_json_is_the_page_with_times_that_programs_read(world: World) -> None:
    url, found = world
    page = Told("runs", "list", "--subject", "customer-2", "--json", url=url).json

    (run,) = page["items"]
    assert (run["run_id"], run["event_type"], page["next"]) == (found["failed-2"], "order.paid", None)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", run["created_at"])


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("--state", "sleeping"), "asleep"),
        (("--type", "order.seen", "--since", "2h"), "completed"),
        (("--source", "emit/order.paid", "--event", "order-0"), "failed-0"),
        (("--error", "DECLINED order-2"), "failed-2"),
    ],
)
def test_filters_are_those_of_the_console(world: World, arguments: tuple[str, ...], name: str) -> None:
    url, found = world
    page = Told("runs", "list", *arguments, "--json", url=url).json

    assert [run["run_id"] for run in page["items"]] == [found[name]]


def test_a_failed_run_is_shown_with_its_time_its_failure_and_the_way_out(world: World) -> None:
    url, found = world
    told = Told("runs", "show", found["failed-1"], url=url)

    assert told.status == 0
    assert re.sub(r'(?s)      File ".*?    …', "    …", told.plain) == SHOWN_FAILED
    assert all(len(line) <= 80 for line in told.text.splitlines() if not line.startswith("      "))


SHOWN_FAILED = """\
failed  run_…  charge
  event       emit/order.paid/order-1  order.paid about customer-1
  accepted    WHEN  (TIME)
  started     WHEN  (TIME)
  ended       WHEN  (TIME), after WHEN
  generation  1, attempt 1
  payload     {"order":"order-1"}

Steps
             0  WHEN
  attempt 1  WHEN  failed
  load  WHEN  done
  pay  WHEN  failed

Idempotency keys
  load  ow_KEY
  pay   ow_KEY

Results of steps
  load  {"order":"order-1","access_token":"[redacted]"}

Failure
  onceward.Permanent: card declined for order-1, password=[redacted]
    … --values shows it whole

What you can do
  onceward runs retry run_…
      try again where it failed, once the cause is mended; the saved step is
      kept
  onceward runs restart run_…
      run every step again: what 'load', 'pay' did outside happens again
  onceward runs replay run_…
      make a new run of the same event, in which every step runs again: what
      'load', 'pay' did outside happens again
  onceward runs dismiss run_…
      leave it failed, and take it off the list of problems"""


def test_a_waiting_run_says_for_whom(world: World) -> None:
    url, found = world
    told = Told("runs", "show", found["waiting"], url=url)

    assert f"Waits for\n  'napping': the end of {found['asleep']}\n" in told.text
    assert "call, under way" in told.text
    shown = Told("runs", "show", found["waiting"], "--json", url=url).json
    assert shown["children"][0]["run_id"] == found["asleep"]


def test_what_is_not_there_is_refused_with_status_one(world: World) -> None:
    url, _ = world
    told = Told("runs", "show", "run_nope", url=url)

    assert (told.status, told.text) == (1, "")
    assert told.errors.startswith("Error [not_found]: There is no run 'run_nope'")


def test_the_subject_of_a_run_leads_to_its_id(world: World) -> None:
    url, found = world
    told = Told("runs", "show", "customer-1", url=url)
    listed = Told("runs", "list", "--subject", "no-such-customer", url=url)

    assert (told.status, told.text) == (1, "")
    assert "There is no run 'customer-1'" in told.errors
    assert f"key or the subject of: {found['failed-1']}." in " ".join(told.errors.split())
    assert "key or the subject" not in Told("runs", "show", "customer-9", url=url).errors
    assert (listed.status, listed.text) == (0, "No run fits.\n")
    assert "--key no-such-customer" in listed.errors


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    told = Told("runs", "list", "--store", f"sqlite:///{tmp_path / 'none.db'}", url="sqlite:///unused.db")

    assert told.status == 3
    assert list(tmp_path.iterdir()) == []


def test_runs_are_steered_by_id(own: tuple[str, list[str]]) -> None:
    url, runs = own
    dry = Told("runs", "dismiss", runs[0], "--dry-run", url=url)
    assert (dry.status, dry.plain) == (0, "run_… would be: dismissed")

    done = Told("runs", "dismiss", runs[0], "--actor", "ann", url=url)
    assert (done.status, done.plain) == (0, "run_… dismissed")
    refused = Told("runs", "resume", runs[0], url=url)
    assert refused.status == 1
    assert "the run is not held" in refused.text
    audits = Told("runs", "show", runs[0], "--json", url=url).json["audits"]
    assert [(entry["verb"], entry["actor"]) for entry in audits] == [("dismiss", "ann")]


def test_a_replay_takes_another_payload(own: tuple[str, list[str]], tmp_path: Path) -> None:
    url, runs = own
    (tmp_path / "payload.json").write_text('{"order": "order-9"}')
    payload = f"@{tmp_path / 'payload.json'}"
    (reply,) = Told("runs", "replay", runs[0], "--payload", payload, "--request", "x", "--json", url=url).json
    shown = Told("runs", "show", reply["run_id"], "--json", url=url).json
    again = Told("runs", "replay", runs[0], "--payload", payload, "--request", "x", "--json", url=url).json

    assert (shown["input"], shown["run"]["replay_of"]) == ({"order": "order-9"}, runs[0])
    assert (again[0]["run_id"], again[0]["is_duplicate"]) == (reply["run_id"], True)
    assert Told("runs", "replay", runs[0], "--payload", "{", url=url).status == 2


def test_a_restart_tells_what_happens_again_and_asks_for_consent(own: tuple[str, list[str]]) -> None:
    url, runs = own
    dry = Told("runs", "restart", runs[0], "--dry-run", "--keep", "load", url=url)
    assert dry.status == 0
    assert " ".join(dry.plain.split()) == (
        "run_… would be: restarted: 1 saved step is kept, the others run again "
        "STEP STATE WOULD BE load done kept pay failed runs again, outside AGAIN "
        'A step counts as outside unless its effect= says otherwise: effect="pure" of one that only reads.'
    )

    refused = Told("runs", "restart", runs[0], url=url)
    assert refused.status == 1
    assert "would do again, outside" in refused.text
    assert " ".join(refused.text.split()).endswith("Look with --dry-run, then say --acknowledge.")
    done = Told("runs", "restart", runs[0], "--acknowledge", "--json", url=url)
    assert (done.status, done.json[0]["generation"]) == (0, 2)


def test_many_runs_are_looked_at_before_they_are_steered(own: tuple[str, list[str]]) -> None:
    url, _ = own
    unsure = Told("runs", "dismiss", "--problems", url=url)
    assert (unsure.status, unsure.text) == (2, "")
    dry = Told("runs", "dismiss", "--problems", "--dry-run", url=url)
    assert dry.plain.splitlines()[-1] == "dismiss of 4 runs; 0 would be refused"
    assert Told("runs", "dismiss", url=url).status == 2

    done = Told("runs", "dismiss", "--problems", "--error", "order-3", "--yes", url=url)
    assert (done.status, done.plain) == (0, "dismiss: 1 of 1 run done, 0 refused")
    rest = Told("runs", "dismiss", "--workflow", "charge", "--yes", "--json", url=url)
    assert (rest.status, rest.json["done"], rest.json["is_over"]) == (0, 4, True)
    assert Told("dead", "--check", url=url).plain.startswith("Nothing is dead")


def test_all_but_one_of_many_is_said_and_is_no_success(sqlite_url: str) -> None:
    shop = Shop(sqlite_url)

    async def scenario() -> None:
        for number in range(11):
            await shop.failed(f"order-{number}")
        await shop.completed("order-seen")

    run_app(shop.app, scenario)
    done = Told("runs", "dismiss", "--since", "1h", "--yes", url=sqlite_url)

    assert (done.status, done.plain) == (
        1,
        "dismiss: 11 of 12 runs done, 1 refused: the run is not an open problem",
    )
    again = Told(
        "runs", "dismiss", "--since", "1h", "--yes", "--request", done.errors.split()[-1], url=sqlite_url
    )
    assert (again.status, again.text, again.errors) == (1, done.text, "")


def test_all_are_steered_but_those_that_are_excepted(own: tuple[str, list[str]]) -> None:
    url, runs = own
    slip = Told("runs", "dismiss", "--problems", "--except", runs[0][:-1], "--yes", url=url)
    assert (slip.status, "which was to be left alone" in slip.errors) == (2, True)
    assert Told("runs", "dismiss", runs[0], "--except", runs[1], url=url).status == 2

    dry = Told("runs", "dismiss", "--problems", "--except", runs[0], "--dry-run", url=url)
    assert dry.plain.splitlines()[-1] == "dismiss of 3 runs; 0 would be refused"
    request = ("--request", "but-one", "--json")
    done = Told("runs", "dismiss", "--problems", "--except", runs[0], "--yes", *request, url=url)
    assert (done.status, done.json["done"]) == (0, 3)
    left = Told("runs", "list", "--problems", "--json", url=url).json["items"]
    assert [run["run_id"] for run in left] == [runs[0]]
    other = Told("runs", "dismiss", "--problems", "--yes", *request, url=url)
    assert (other.status, "was used for another bulk action" in other.errors) == (1, True)


def test_a_run_is_followed_to_its_end(world: World) -> None:
    url, found = world
    completed = Told("runs", "tail", found["completed"], url=url)
    failed = Told("runs", "tail", found["failed-0"], "--json", url=url)

    assert (completed.status, completed.plain) == (0, "TIME  run_…  completed   notice  order-seen")
    assert (failed.status, failed.json["state"]) == (1, "failed")


def test_dead_letters_stand_together_with_the_way_out(world: World) -> None:
    url, _ = world
    told = Told("dead", "--check", url=url)

    assert told.status == 1
    lines = told.plain.splitlines()
    assert lines[0] == "Dead letters: 3 failed"
    assert "3 failed of charge, the last WHEN" in lines
    assert "  onceward runs retry --problems --workflow charge --state failed" in lines
    found = Told("dead", "--json", url=url)
    assert found.status == 0
    assert (len(found.json["runs"]), found.json["counts"]["states"]["failed"]) == (3, 3)


def test_causes_that_differ_are_not_retried_together(own: tuple[str, list[str]]) -> None:
    """The filter of one cause would reach the other, which may not be mended."""
    url, runs = own
    assert Told("runs", "replay", runs[0], "--payload", "{}", url=url).status == 0
    shop = Shop(url)

    async def scenario() -> list[str]:
        (odd,) = set(await shop.ids(workflow="charge")) - set(runs)
        await shop.stands(odd, "failed")
        return [odd]

    (odd,) = run_app(shop.app, scenario)
    lines = Told("dead", url=url, columns=None).text.splitlines()

    assert f"  onceward runs retry {odd}" in lines
    assert any(line.startswith(odd) and line.endswith("KeyError: 'order'") for line in lines)
    assert f"  onceward runs retry {' '.join(reversed(runs))}" in lines
    assert not [line for line in lines if "--workflow charge" in line]


def test_a_filter_that_reaches_other_causes_says_so(own: tuple[str, list[str]]) -> None:
    url, _ = own
    shop = Shop(url)

    async def scenario() -> None:
        for number in range(11):
            await shop.failed(f"parcel-{number}")

    run_app(shop.app, scenario)
    told = " ".join(Told("dead", url=url).text.split())

    assert "11 failed of charge" in told
    assert "reaches every failed run of charge: add --error WORDS." in told


def test_a_question_is_answered_with_what_the_step_gave(sqlite_url: str) -> None:
    shop = Shop(sqlite_url)

    @shop.app.step(unknown="ask")
    async def transfer() -> str:
        raise OutcomeUnknown("the connection broke")

    @shop.app.workflow
    async def pay_out(ctx: Context) -> str:
        return await transfer()

    async def scenario() -> str:
        run_id = (await shop.app.start(pay_out)).run_id
        await shop.stands(run_id, "held")
        return run_id

    run_id = run_app(shop.app, scenario)
    answered = ("runs", "answer", run_id, "--with", "happened")

    assert (
        f"  onceward runs answer {run_id} --with happened --result JSON" in Told("dead", url=sqlite_url).text
    )
    assert f"{run_id} --with happened --result JSON" in Told("runs", "show", run_id, url=sqlite_url).text
    silent = Told(*answered, url=sqlite_url)
    assert (silent.status, silent.text) == (2, "")
    assert "does not say what step 'transfer' gave" in silent.errors
    bare = Told(*answered, "--result", "tx 1", url=sqlite_url)
    assert bare.status == 2
    assert "A text has quotes of its own" in bare.errors
    told = Told(*answered, "--result", '"tx 1"', url=sqlite_url)
    assert told.plain.split() == (
        [
            "run_…",
            "answered:",
            "happened;",
            "the",
            "type",
            "of",
            "its",
            "result",
            "is",
            "not",
            "known",
            "here,",
            "so",
            "the",
            "run",
            "compares",
            "it",
        ]
    )


def test_what_a_run_waits_for_is_named(sqlite_url: str) -> None:
    shop = Shop(sqlite_url)

    async def scenario() -> str:
        run_id = (await shop.app.start(shop.pack)).run_id
        await shop.stands(run_id, "waiting")
        return run_id

    run_id = run_app(shop.app, scenario)
    told = Told("runs", "show", run_id, url=sqlite_url, columns=None)

    assert "  warehouse.packed, for 'packed', until TIME" in told.plain.splitlines()


def test_a_wait_and_a_promise_are_ended_from_the_command_line(sqlite_url: str) -> None:
    settings = {"promise_secret": "s" * 32, "public_url": "https://shop.example"}
    shop = Shop(sqlite_url, **settings)

    async def wait() -> tuple[str, str]:
        packing, signing = (await shop.app.start(shop.pack)).run_id, (await shop.app.start(shop.sign)).run_id
        await shop.stands(packing, "waiting")
        await shop.stands(signing, "waiting")
        return packing, signing

    packing, signing = run_app(shop.app, wait)
    ways = (
        Told("runs", "show", packing, url=sqlite_url).text
        + Told("runs", "show", signing, url=sqlite_url).text
    )
    assert "onceward emit warehouse.packed --data JSON" in ways
    assert f"onceward runs complete {signing} --value JSON" in ways
    emitted = Told("emit", "warehouse.packed", "--data", '{"boxes": 2}', "--id", "p-1", url=sqlite_url)
    again = Told(
        "emit", "warehouse.packed", "--data", '{"boxes": 2}', "--id", "p-1", "--json", url=sqlite_url
    )
    done = Told("runs", "complete", signing, "--value", '"yes"', url=sqlite_url)
    other = Told("runs", "complete", signing, "--value", '"no"', url=sqlite_url)

    assert (emitted.status, again.status, done.status, other.status) == (0, 0, 0, 1)
    assert f"It fits a wait of {packing}." in emitted.text
    assert (again.json["is_duplicate"], again.json["waits"]) == (True, [])
    assert done.text == f"{signing} the promise approval was completed\n"
    assert "was completed" in other.errors

    shop = Shop(sqlite_url, **settings)

    async def go_on() -> object:
        await shop.stands(packing, "completed")
        await shop.stands(signing, "completed")
        return (await shop.console.run(signing)).output

    assert run_app(shop.app, go_on) == "yes"


def test_an_event_that_reaches_nobody_says_so_and_what_is_no_event_is_refused(
    own: tuple[str, list[str]], tmp_path: Path
) -> None:
    url, _ = own
    path = tmp_path / "order.json"
    path.write_text('{"order": "order-9"}')
    started = Told("emit", "order.paid", "--file", str(path), "--subject", "c-9", url=url)
    unheard = Told("emit", "nobody.listens", url=url)

    assert "queued  charge" in re.sub(" +", "  ", started.plain)
    assert "No workflow subscribed to nobody.listens, and nothing waits for it" in " ".join(
        unheard.text.split()
    )
    assert "onceward workflows list" in unheard.text
    assert Told("emit", "order.paid", "--data", "{oops", url=url).status == 2
    assert Told("emit", "order.paid", "--data", "1", "--file", str(path), url=url).status == 2
    assert Told("emit", "order.paid", "--source", "strpie", url=url).status == 2


def test_events_and_deliveries_are_listed_and_shown(world: World) -> None:
    url, _ = world
    listed = Told("events", "list", "--source", "stripe", "--json", url=url).json
    assert [event["id"] for event in listed["items"]] == ["evt_1"]
    lonely = Told("events", "list", "--without-runs", url=url)
    assert [line.split()[:3] for line in lonely.plain.splitlines()[1:]] == [
        ["stripe", "evt_1", "invoice.paid"]
    ]

    event = Told("events", "show", "stripe/evt_1", url=url)
    assert '{"client_secret":"[redacted]"}' in re.sub("\\n +", "", event.text), "folded at 80 columns"
    assert "No workflow is on this type" in event.text
    own_event = Told("events", "show", "emit/order.paid/order-0", url=url)
    assert "charge" in own_event.text
    nameless = Told("events", "show", "evt_1", url=url)
    assert nameless.status == 2
    assert "e.g. stripe/evt_1." in " ".join(nameless.errors.split())

    (delivery,) = Told("deliveries", "list", "--since", "1h", "--json", url=url).json["items"]
    assert Told("deliveries", "list", "--until", "1h", url=url).text == "No delivery fits.\n"
    shown = Told("deliveries", "show", delivery["delivery_id"], url=url)
    assert "pi_s" not in shown.text
    assert "POST http" in shown.text
    assert "that it arrived: the event was stored before" in shown.text
    unknown = Told("events", "show", "stripe/evt_2", url=url)
    assert "It never came, or was refused" in " ".join(unknown.errors.split())


def test_what_was_refused_is_listed_with_what_to_do(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(sqlite_url)

    async def scenario() -> None:
        headers = shop.stripe.sign(BODY, shop.app.worker.now_ms())
        await call(shop.app.asgi(), "POST", "/hooks/stripe", headers, BODY + b" ")
        await eventually_async(shop.app.refusals, what="the refusal is counted")

    run_app(shop.app, scenario)
    told = Told("deliveries", "refused", url=sqlite_url)

    assert told.status == 0
    assert told.text.startswith("stripe: no signature matches")
    assert "  1 time, the last" in told.text
    assert "  401  no signature matches (offered: 1, secrets tried: 1)\n" in told.text
    assert "told where the code is: onceward deliveries refused --app" in " ".join(told.text.split())
    (tmp_path / "looked.py").write_text(
        "from onceward import App\nfrom onceward.sources import Stripe\n"
        'app = App()\napp.source(Stripe(secrets="whsec_0123456789abcdefghij"))\n'
    )
    monkeypatch.chdir(tmp_path)
    beside = Told("deliveries", "refused", "--app", "looked:app", url=sqlite_url)
    assert "--to http://127.0.0.1:<port>/hooks/stripe" in " ".join(beside.text.split()), beside.errors
    assert Told("deliveries", "refused", "--source", "stripe", "--json", url=sqlite_url).json[0]["count"] == 1
    none = Told("deliveries", "refused", "--source", "other", url=sqlite_url).text
    assert none.startswith(f"Nothing was refused, up to some {refusals.FLUSH_S:.0f} s ago")


def test_an_address_and_a_store_exclude_each_other(world: World) -> None:
    url, _ = world
    told = Told("workers", "--api", "http://127.0.0.1:1", "--store", url, url=url)
    assert told.status == 2
    away = Told("workers", "--api", "http://127.0.0.1:1", url=url)
    assert away.status == 3
    assert "There is no reply from http://127.0.0.1:1" in away.errors


def test_nobody_works_where_no_process_is_registered(world: World) -> None:
    url, _ = world
    assert Told("workers", url=url).text.startswith("No process is registered")
    assert Told("workers", "--json", url=url).json == []
    assert Told("notices", url=url).text.startswith("Nobody is told")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion(shell: str) -> None:
    told = Told("completion", shell, url="sqlite:///unused.db")

    assert told.status == 0
    assert "_ONCEWARD_COMPLETE" in told.text
