"""The shape of the code: layers, a pure core, light imports, nothing that runs stored text.

Each rule is a function from a module's source to complaints, so that a planted breach shows that
it can complain.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "onceward"
LINES_MAX = 600
# To be split; an entry may shrink and go, never grow.
LONGER: dict[str, int] = {}

# Who may import whom: a layer imports from lower numbers only. Equal numbers are sideways.
LAYERS = {
    "version": 0,
    "core": 0,
    "authoring": 1,
    "sources": 1,
    "stores": 1,
    "runtime": 2,
    "outgoing": 2,  # hooks for HTTP clients, which ask what step runs
    "logs": 2,  # filters and a formatter for logging, which ask the same
    "app": 3,
    "": 4,  # the package itself: it hands out names from the layers below
    "console": 5,  # what a person asks of a store, for the REST API, the dashboard and the CLI
    "web": 6,
    "adapters": 7,  # no framework is imported but for the types
    "check": 7,  # reads source, and needs nothing of ours to run
    "testing": 7,
    "cli": 8,  # above testing: the demo starts a PostgreSQL of its own
    "__main__": 9,  # python -m onceward
}
# Modules beside app.py that are parts of it.
PARTS_OF_APP = {
    "arrivals",
    "desk",
    "handles",
    "planning",
    "promising",
    "receiving",
    "refusals",
    "registry",
    "sending",
    "sync",
}
# Arrows that point up, and why. They may only be drawn inside a function or for the types.
LAZY_ARROWS = {
    ("app", "web"): "app.asgi() hands out the receiver to those who want it",
}

CORE_MAY_NOT_IMPORT = {
    "asyncio",
    "concurrent",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
}
CORE_MAY_NOT_CALL = {
    "open",
    "print",
    "input",
    "now",
    "utcnow",
    "today",
    "uuid1",
    "uuid4",
    "uuid6",
    "uuid7",
    "urandom",
}
CORE_MAY_IMPORT_ANYWAY = {
    "core/errors.py": {"asyncio"},  # suspension and cancellation are subclasses of asyncio's
    "core/ids.py": {"os", "threading"},  # a lock, and a hook that forgets it after a fork
}

RUNS_STORED_CODE = {
    "cloudpickle",
    "code",
    "dill",
    "jsonpickle",
    "marshal",
    "pickle",
    "runpy",
    "shelve",
    "yaml",
}
RUNS_TEXT = {"eval", "exec", "compile", "__import__", "import_module"}
# "shop:app" on the command line is named by who starts the process, not by what is stored; a
# package that imports its modules when they are asked for has their names in itself.
MAY_IMPORT_BY_NAME = re.compile(r"cli/.*|(.*/)?__init__\.py")

HEAVY = {
    "click",
    "cryptography",
    "django",
    "fastapi",
    "flask",
    "http.client",
    "httptools",
    "jinja2",
    "litestar",
    "opentelemetry",
    "psycopg",
    "pydantic",
    "rich",
    "sqlite3",
    "starlette",
    "urllib.request",
    "uvicorn",
    "uvloop",
}  # ssl is not among them: asyncio loads it


def modules() -> list[Path]:
    found = sorted(PACKAGE.rglob("*.py"))
    assert len(found) > 10, "the package was not found"
    return found


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


# --- the rules ------------------------------------------------------------------------------------


def imported(tree: ast.AST, name: str) -> Iterator[str]:
    """Give the full names that a module imports, relative ones resolved, also inside functions."""
    package = ["onceward", *Path(name).parent.parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            # "from onceward import web" names a layer, "from onceward.core import ids" a module.
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def imported_at_once(tree: ast.Module, name: str) -> set[str]:
    """Give what a module imports when it is imported itself: not in functions, not for the types."""
    statements = [
        node
        for node in tree.body
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    ]
    return {target for statement in statements for target in imported(statement, name)}


def layer_of(full_name: str) -> str | None:
    """Give the layer of something of ours, None for others' modules."""
    parts = full_name.split(".")
    if parts[0] != "onceward":
        return None
    layer = parts[1] if len(parts) > 1 else ""
    if layer in PARTS_OF_APP:
        return "app"
    exists = (PACKAGE / layer).is_dir() or (PACKAGE / f"{layer}.py").exists()
    return layer if layer in LAYERS or exists else ""


def called(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Give the last part of each called name, and whether it was called as an attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                yield node.func.id, False
            elif isinstance(node.func, ast.Attribute):
                yield node.func.attr, True


def wrong_arrows(tree: ast.Module, name: str) -> list[str]:
    own = "" if name == "__init__.py" else layer_of(f"onceward.{Path(name).parts[0].removesuffix('.py')}")
    if own not in LAYERS or (own == "" and name != "__init__.py"):
        return [f"{name}: no layer; give it one in LAYERS and in the design"]
    at_once = imported_at_once(tree, name)
    complaints = []
    for target in dict.fromkeys(imported(tree, name)):
        layer = layer_of(target)
        if layer is None or layer == own:
            continue
        is_lazy = (own, layer) in LAZY_ARROWS and target not in at_once
        if not is_lazy and (layer not in LAYERS or LAYERS[layer] >= LAYERS[own]):
            complaints.append(f"{name} imports {target}: {own or 'the package'} is not above {layer or 'it'}")
    return complaints


def impure_core(tree: ast.Module, name: str) -> list[str]:
    if not name.startswith("core/"):
        return []
    allowed = CORE_MAY_IMPORT_ANYWAY.get(name, set())
    complaints = [
        f"{name} imports {target}: core has no I/O, clock or randomness"
        for target in imported(tree, name)
        if target.partition(".")[0] in CORE_MAY_NOT_IMPORT - allowed
    ]
    complaints += [
        f"{name} calls {call}: core is given the time, the random draw and the bytes"
        for call, _ in called(tree)
        if call in CORE_MAY_NOT_CALL
    ]
    return complaints


def runs_stored_text(tree: ast.Module, name: str) -> list[str]:
    complaints = [
        f"{name} imports {target}: reading it could run code (I25)"
        for target in imported(tree, name)
        if target.partition(".")[0] in RUNS_STORED_CODE
    ]
    for call, is_attribute in called(tree):
        is_ours = call in RUNS_TEXT and not (is_attribute and call != "import_module")
        if is_ours and not (call == "import_module" and MAY_IMPORT_BY_NAME.fullmatch(name)):
            complaints.append(f"{name} calls {call}: it could run stored text (I25)")
    return complaints


def undocumented(tree: ast.Module, name: str) -> list[str]:
    return [] if ast.get_docstring(tree) else [f"{name} has no docstring"]


RULES: list[Callable[[ast.Module, str], list[str]]] = [
    wrong_arrows,
    impure_core,
    runs_stored_text,
    undocumented,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_module_keeps_the_rule(rule: Callable[[ast.Module, str], list[str]]) -> None:
    complaints = [
        complaint for path in modules() for complaint in rule(ast.parse(path.read_text()), name_of(path))
    ]

    assert complaints == []


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (wrong_arrows, "core/ids.py", "from onceward.runtime import worker"),
        (wrong_arrows, "core/ids.py", "import onceward"),
        (wrong_arrows, "stores/sqlite/store.py", "from onceward.sources.base import Source"),
        (wrong_arrows, "stores/rows.py", "from ..sources import base"),
        (wrong_arrows, "sources/stripe.py", "def f():\n    from onceward.authoring import step"),
        (wrong_arrows, "authoring/step.py", "if TYPE_CHECKING:\n    from onceward.app import App"),
        (wrong_arrows, "runtime/worker.py", "from onceward import app"),
        (wrong_arrows, "app.py", "from onceward.web.receiver import Receiver"),
        (wrong_arrows, "web/receiver.py", "from onceward.testing import servers"),
        (wrong_arrows, "__init__.py", "from onceward.web import receiver"),
        (wrong_arrows, "extras/new.py", "import re"),
        (wrong_arrows, "extra.py", "import re"),
        (wrong_arrows, "core/ids.py", "from onceward.version import __version__"),
        (wrong_arrows, "runtime/worker.py", "from onceward.handles import RunHandle"),
        (wrong_arrows, "runtime/worker.py", "def f():\n    from onceward.web import receiver"),
        (impure_core, "core/ids.py", "import time"),
        (impure_core, "core/codec.py", "from os import path"),
        (impure_core, "core/retry.py", "import asyncio"),
        (impure_core, "core/retry.py", "at = datetime.now(UTC)"),
        (impure_core, "core/retry.py", "id = uuid4()"),
        (runs_stored_text, "core/codec.py", "import pickle"),
        (runs_stored_text, "stores/rows.py", "eval(text)"),
        (runs_stored_text, "runtime/worker.py", "importlib.import_module(row.module)"),
        (undocumented, "core/codec.py", "import json"),
    ],
)
def test_a_planted_breach_is_found(
    rule: Callable[[ast.Module, str], list[str]], name: str, source: str
) -> None:
    assert len(rule(ast.parse(source), name)) == 1


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (wrong_arrows, "core/ids.py", "from onceward.core import duration\nfrom . import shown"),
        (wrong_arrows, "stores/sqlite/store.py", "from onceward.core.errors import StoreError"),
        (wrong_arrows, "__init__.py", "from onceward.app import App\nfrom onceward.core.errors import Permanent"),
        (wrong_arrows, "cli/demo.py", "from onceward.testing.servers import PostgresServer"),
        (wrong_arrows, "app.py", "def asgi():\n    from onceward.web.receiver import Receiver"),
        (wrong_arrows, "app.py", "from onceward.handles import RunHandle\nfrom onceward.version import x"),
        (impure_core, "core/errors.py", "import asyncio"),
        (impure_core, "runtime/worker.py", "import time"),
        (runs_stored_text, "core/paths.py", "re.compile('a')"),
        (runs_stored_text, "cli/target.py", "importlib.import_module(name)"),
    ],
)  # fmt: skip
def test_what_is_right_is_not_complained_of(
    rule: Callable[[ast.Module, str], list[str]], name: str, source: str
) -> None:
    assert rule(ast.parse(source), name) == []


# --- size, weight, left-overs ----------------------------------------------------------------


def test_modules_can_be_read_in_one_sitting() -> None:
    lengths = sorted(
        ((len(path.read_text().splitlines()), name_of(path)) for path in modules()), reverse=True
    )
    report = "\n".join(f"{lines:5} {name}" for lines, name in lengths[:10])
    print(f"The longest modules:\n{report}")

    assert [name for lines, name in lengths if lines > LONGER.get(name, LINES_MAX)] == [], report
    assert [name for lines, name in lengths if name in LONGER and lines <= LINES_MAX] == [], (
        "take it off LONGER"
    )


@pytest.mark.parametrize(
    "statement",
    [
        *("import onceward", "import onceward.sources", "import onceward.core.settings"),
        "from onceward.adapters import asgi, django, fastapi, flask, litestar, starlette, wsgi",
    ],
)
def test_importing_stays_light(statement: str) -> None:
    program = f"{statement}\nimport sys\nprint(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)},
    )

    loaded = set(done.stdout.split())
    assert "onceward" in loaded
    assert loaded & HEAVY == set()


def texts() -> Iterator[Path]:
    for folder in ("src", "tests", "scripts", "examples", "benchmarks", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".sql", ".md", ".sh", ".toml"} and "generated" not in path.parts:
                yield path
    yield from ROOT.glob("*.md")


# --- the tree explains itself ---------------------------------------------------------------------

INSIDE = ROOT / "docs" / "inside.md"
CITED = re.compile(
    r"\b(RULINGS) (\d+(?:(?:, | to | and )\d+)*)|\b(I)(\d{1,2})\b|\b(F)(\d{2})\b|\b(B)(0\d{2})\b"
)


def numbers(text: str) -> set[str]:
    """Give the promises, rulings and faults that a text cites by number."""
    found = set()
    for match in CITED.finditer("\n".join(line for line in text.splitlines() if "noqa" not in line)):
        kind, digits = (part for part in match.groups() if part is not None)
        first, *rest = re.findall(r"\d+", digits)
        if " to " in digits:
            rest = [str(number) for number in range(int(first), int(rest[-1]) + 1)]
        found |= {f"{kind} {number}" if kind == "RULINGS" else f"{kind}{number}" for number in (first, *rest)}
    return found


def test_every_number_that_is_cited_is_explained() -> None:
    contract = ROOT / "docs" / "contract.md"
    explained = {
        number
        for line in contract.read_text().splitlines()
        if line.startswith("| ")
        for number in numbers(line.split("|")[1])
    }
    cited = {
        number: path.relative_to(ROOT).as_posix()
        for path in texts()
        if path != contract
        for number in numbers(path.read_text())
    }
    assert len(cited) > 40

    assert {number: path for number, path in cited.items() if number not in explained} == {}


@pytest.mark.parametrize(("word", "module"), [("rows", "invariants"), ("change", "history")])
def test_what_is_said_to_be_watched_is_watched(word: str, module: str) -> None:
    rows = [line.split("|") for line in (ROOT / "docs" / "contract.md").read_text().splitlines()]
    said = {row[1].strip() for row in rows if len(row) > 4 and word in row[3]}
    files = (PACKAGE / "testing" / f"{name}.py" for name in (module, f"wait_{module}"))
    source = "".join(file.read_text() for file in files if file.exists())

    assert said == set(re.findall(r'"(I\d+)"', source))


def test_numbers_are_found_as_they_are_cited() -> None:
    assert numbers("(RULINGS 19, 23) and RULINGS 1 to 3 and I8, F27, B088") == {
        *(f"RULINGS {number}" for number in (19, 23, 1, 2, 3)),
        *("I8", "F27", "B088"),
    }
    assert numbers("x  # noqa: B018\nUTF8, I/O, F821, B904") == set()


def test_the_page_about_the_inside_names_what_there_is_and_every_folder() -> None:
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_0-9]+)*(?:\.py|/))`", INSIDE.read_text()))
    assert len(named) > 40
    folders = {f"{path.parent.relative_to(PACKAGE).as_posix()}/" for path in modules()} - {"./"}

    assert {name for name in named if not (PACKAGE / name).exists() and not (ROOT / name).exists()} == set()
    assert {folder for folder in folders if folder.count("/") == 1} - named == set()


# --- left-overs ---------------------------------------------------------------------------------


def test_nothing_is_left_for_later() -> None:
    left = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")

    found = [path.relative_to(ROOT).as_posix() for path in texts() if left.search(path.read_text())]

    assert found == []


def test_tests_neither_skip_nor_sleep() -> None:
    evasions = re.compile(r"pytest\.(skip|xfail|importorskip)|mark\.(skip|skipif|xfail)|\btime\.sleep\(")

    found = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if path.name not in {"helpers.py", Path(__file__).name} and evasions.search(path.read_text())
    ]

    assert found == []


def test_every_script_parses_and_can_be_run() -> None:
    scripts = [ROOT / ".ci" / "run", *sorted((ROOT / "scripts").glob("*.sh"))]
    assert len(scripts) > 3

    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)
        assert os.access(script, os.X_OK), script


def test_every_target_of_the_makefile_has_a_line_of_help() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^\.PHONY: (\S+)$", makefile, re.MULTILINE))

    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)

    assert set(re.findall(r"^  make (\S+)", done.stdout, re.MULTILINE)) == targets
    assert {"help", "setup", "demo", "test", "check", "sim", "docs", "bench", "peers", "dist"} <= targets
