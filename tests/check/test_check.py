"""What the check finds in planted code, what it leaves alone, and what its rules are worth."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import onceward
from onceward.check import results
from onceward.check.checker import check
from onceward.check.findings import RULES, Finding
from onceward.core import codec, errors
from tests.check.planted import BLOCKS, HEAD, PAUSE, PLANTED, SILENT, SILENT_BLOCKS
from tests.pages import ROOT, programs, visible

LINES = [(rule, line) for rule, lines in PLANTED.items() for line in lines]


def found_in(folder: Path, **files: str) -> list[Finding]:
    for name, code in files.items():
        (folder / f"{name}.py").write_text(code)
    return list(check([folder / f"{next(iter(files))}.py"]).findings)


def line_of(code: str, mark: str) -> int:
    lines = [number for number, line in enumerate(code.splitlines(), 1) if line.endswith(mark)]
    assert len(lines) == 1
    return lines[0]


def test_code_without_anything_wrong_is_passed_over_in_silence(tmp_path: Path) -> None:
    assert found_in(tmp_path, shop=f"{HEAD}    pass\n") == []


@pytest.mark.parametrize(("rule", "line"), LINES)
def test_what_is_planted_in_a_line_is_found(tmp_path: Path, rule: str, line: str) -> None:
    code = f"{HEAD}    {line}\n"
    elsewhere = [number for number, one in enumerate(code.splitlines(), 1) if one.endswith(f"# by {line}")]
    if "# by mailer.send" in code and line.startswith("mailer.send"):
        elsewhere = [line_of(code, "# by mailer.send")]
    if "to_thread(stamp)" in line:
        elsewhere = [line_of(code, "# by stamp()")]

    found = found_in(tmp_path, shop=code)

    expected = elsewhere or [len(code.splitlines())]
    assert [(one.rule, one.line) for one in found] == [(rule, number) for number in expected]


@pytest.mark.parametrize(("rule", "block"), BLOCKS)
def test_what_is_planted_in_a_block_is_found(tmp_path: Path, rule: str, block: str) -> None:
    code = HEAD + block.replace("PAUSE", PAUSE)

    found = found_in(tmp_path, shop=code)

    assert [(one.rule, one.line) for one in found] == [(rule, line_of(code, "# here"))]


@pytest.mark.parametrize("line", SILENT)
def test_what_is_right_in_a_line_is_left_alone(tmp_path: Path, line: str) -> None:
    assert found_in(tmp_path, shop=f"{HEAD}    {line}\n") == []


@pytest.mark.parametrize("block", SILENT_BLOCKS)
def test_what_is_right_in_a_block_is_left_alone(tmp_path: Path, block: str) -> None:
    assert found_in(tmp_path, shop=HEAD + block.replace("PAUSE", PAUSE)) == []


def test_every_rule_is_planted_and_has_a_reason_and_a_fix(tmp_path: Path) -> None:
    assert set(RULES) == {rule for rule, _ in (*LINES, *BLOCKS)} == set(PLANTED)

    found = found_in(tmp_path, shop=f"{HEAD}    t = time.time()\n")

    assert found[0].message.startswith("time.time() looks at the clock outside a step in workflow 'flow': ")
    assert "ctx.step.now" in found[0].fix
    assert all(rule.why and rule.fix.endswith(".") for rule in RULES.values())


# --- whose workflows -----------------------------------------------------------------------------


def test_workflows_of_others_are_not_ours(tmp_path: Path) -> None:
    code = """
import time
from dbos import DBOS
from temporalio import workflow

@DBOS.workflow()
def one(order: str) -> float:
    return time.time()

@workflow.defn
class Two:
    @workflow.run
    async def run(self) -> float:
        return time.time()
"""

    assert found_in(tmp_path, peer=code) == []
    assert found_in(tmp_path, both="from onceward import App\n" + code) == []


@pytest.mark.parametrize(
    "begin",
    [
        "from shop_app import app",
        "import shop_app\napp = shop_app.app",
        "from shop_app import make\napp = make()",
        "from somewhere_else import app",
        "from onceward import App\napp: App",
    ],
)
def test_the_app_may_come_from_another_file(tmp_path: Path, begin: str) -> None:
    apps = 'from onceward import App\napp = App()\ndef make() -> App:\n    return App("x")\n'
    flow = "@app.workflow\nasync def flow(ctx: Context) -> float:\n    return time.time()\n"
    code = f"import time\nfrom onceward import Context\n{begin}\n\n{flow}"

    assert [one.rule for one in found_in(tmp_path, shop=code, shop_app=apps)] == ["time-outside-step"]


def test_helpers_and_steps_in_other_files_are_followed(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").touch()
    (tmp_path / "parts" / "prices.py").write_text("import time\ndef today():\n    return time.time()\n")
    (tmp_path / "parts" / "steps.py").write_text(
        "from shop_app import app\nimport time\n@app.step\nasync def pay() -> float:\n    return time.time()\n"
    )
    code = """
from onceward import Context
from parts import prices
from parts.steps import pay
from shop_app import app

@app.workflow
async def flow(ctx: Context) -> None:
    await pay()
    prices.today()
"""

    found = found_in(tmp_path, shop=code, shop_app="from onceward import App\napp = App()\n")

    assert [(Path(one.file).name, one.line, one.rule) for one in found] == [
        ("prices.py", 3, "time-outside-step")
    ]
    assert "leads here from shop.py, line 10" in found[0].message


# --- excuses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "t = time.time()  # onceward: allow[time-outside-step] only logged",
        "t = time.time()  # onceward: allow[set-order, time-outside-step]",
        "# onceward: allow[time-outside-step]\n    t = time.time()",
        "# onceward: allow[time-outside-step]\n    # onceward: allow[set-order]\n    t = time.time()",
        "stamp()  # onceward: allow[time-outside-step]",
    ],
)
def test_a_comment_excuses_a_line_or_what_it_leads_to(tmp_path: Path, line: str) -> None:
    assert found_in(tmp_path, shop=f"{HEAD}    {line}\n") == []


@pytest.mark.parametrize(
    "line",
    [
        "t = time.time()  # onceward: allow[uuid-outside-step]",
        "t = time.time()  # onceward: allow",
        "x = 'onceward: allow[time-outside-step]'; t = time.time()",
        "# onceward: allow[time-outside-step]\n\n    t = time.time()",
    ],
)
def test_a_comment_about_something_else_excuses_nothing(tmp_path: Path, line: str) -> None:
    assert [one.rule for one in found_in(tmp_path, shop=f"{HEAD}    {line}\n")] == ["time-outside-step"]


# --- what it is worth ----------------------------------------------------------------------------


def test_our_examples_and_what_our_pages_show_are_passed_over(tmp_path: Path) -> None:
    wrong_on_purpose = {"check", "values"}
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        if page.stem in wrong_on_purpose:
            continue
        folder = tmp_path / page.stem
        folder.mkdir()
        for name, code in programs(visible(page.read_text()), "page.py").items():
            (folder / name).write_text(code)

    report = check([tmp_path, ROOT / "examples", ROOT / "src" / "onceward"])

    assert report.unreadable == ()
    assert report.workflows > 20
    assert [f"{one.file}:{one.line} {one.rule}" for one in report.findings] == []


@pytest.mark.parametrize("package", ["flask", "aiohttp", "click", "starlette"])
def test_code_of_others_is_passed_over(package: str) -> None:
    folder = Path(importlib.import_module(package).__file__ or "").parent

    report = check([folder])

    assert report.files > 10
    assert (report.findings, report.unreadable, report.workflows) == ((), (), 0)


def test_code_that_is_nested_too_deeply_is_told_and_the_rest_checked(tmp_path: Path) -> None:
    deep = " + ".join(["event.payload"] * 2_500)
    (tmp_path / "deep.py").write_text(f"{HEAD}    x = {deep}\n")
    (tmp_path / "shop.py").write_text(f"{HEAD}    t = time.time()\n")

    report = check([tmp_path])

    assert [(Path(one.file).name, one.rule) for one in report.findings] == [("shop.py", "time-outside-step")]
    assert [Path(one.path).name for one in report.unreadable] == ["deep.py"]


def test_nothing_is_imported(tmp_path: Path) -> None:
    code = f"raise SystemExit('imported')\n{HEAD}    t = time.time()\n"

    assert len(found_in(tmp_path, shop=code)) == 1


def test_what_it_calls_unstorable_the_engine_refuses() -> None:
    named = {
        path
        for path in results._NO_DATA
        if path.partition(".")[0] not in {"numpy", "pandas", "httpx2", "aiohttp", "httpx", "requests"}
    }
    named |= {"pathlib.Path", "io.BytesIO", "threading.Thread", "asyncio.Task", "ipaddress.IPv4Address"}
    named |= {
        "queue.Queue",
        "concurrent.futures.Future",
        "collections.abc.Callable",
        "typing.IO",
        "ValueError",
    }
    for path in sorted(named):
        module, _, name = path.rpartition(".")
        kind = getattr(importlib.import_module(module or "builtins"), name)
        with pytest.raises(errors.ConfigError):
            codec.codec_for(kind)


def test_the_page_names_every_rule_with_a_line_that_breaks_it() -> None:
    page = (ROOT / "docs" / "check.md").read_text()

    assert set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)) == set(RULES)


def test_the_words_for_contexts_and_apps_are_those_of_the_package() -> None:
    assert {"App", "Context", "SyncContext"} <= set(onceward.__all__)
