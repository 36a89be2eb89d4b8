"""The tool that changes programs: what it changes, and that it tells a change that a test notices from one that none does."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path
from subprocess import PIPE

from tests.campaign.mutation.changes import changed, changes, with_hits
from tests.campaign.mutation.trials import is_for_a_server
from tests.starts import ROOT, start

FEE = """\
'''The fee of an order.'''
FREE_FROM = 50

def fee(euros: int, is_member: bool = False) -> int:
    '''Give it in euros.'''
    if is_member or euros >= FREE_FROM:
        return 0
    return 5 - fee_spared(euros)

def fee_spared(euros: int) -> int:
    return 1 if euros > 40 else 0
"""

TESTS = """\
import pytest
from till.fee import fee

@pytest.mark.parametrize(("euros", "is_member", "owed"), [(50, False, 0), (49, False, 4), (9, True, 0)])
def test_the_fee(euros, is_member, owed):
    assert fee(euros, is_member) == owed

def test_nobody_is_a_member_by_default():
    assert fee(9) == 5
"""

PROGRAM = """
import sys
from pathlib import Path
from tests.campaign.mutants import Table, main
table = Table(groups={"till": ["till/*.py"]}, floors={"till": 90.0}, tests=["tests"], src=Path())
sys.exit(main(sys.argv[1:], table))
"""


def told(source: str) -> set[str]:
    return {change.what for change in changes(ast.parse(source))}


def test_a_program_is_changed_where_it_decides_and_reckons() -> None:
    assert told("if a < 1 and not b:\n    x.y += 2") == {
        "a < 1 and (not b)  ->  a < 1 or not b",
        "a < 1 and (not b)  ->  True",
        "a < 1 and (not b)  ->  False",
        "a < 1 and (not b)  ->  not (a < 1 and (not b))",
        "a < 1  ->  a <= 1",
        "a < 1  ->  a >= 1",
        "1  ->  2",
        "not b  ->  b",
        "x.y += 2  ->  nothing",
        "2  ->  3",
    }
    assert told("def f(a, b=True):\n    return g(a, b) - 1") == {
        "True  ->  False",
        "g(a, b) - 1  ->  None",
        "g(a, b) - 1  ->  g(a, b) + 1",
        "g(a, b)  ->  g(b, a)",
        "1  ->  2",
    }


def test_two_arguments_that_are_the_same_change_no_places() -> None:
    assert told("f(a.b, a.b)") == {"f(a.b, a.b)  ->  nothing"}
    assert "f(a, b)  ->  f(b, a)" in told("f(a, b)")


def test_what_only_people_read_is_left_as_it_is() -> None:
    read = '''
"""A module of 1."""
Id: TypeAlias = Literal["a"]
class Port(Protocol):
    size: int = 1
@dataclass(frozen=True)
class Order:
    """An order."""
    id: Literal["a", "b"]
def refuse(why: str) -> NoReturn:
    raise ValueError(why or "none")
def act(order: Order) -> None:
    log.warning("%s is late", order.id)
    assert order.id, "no id"
    raise KeyError(f"no {order.id}", 1)
'''
    assert told(read) == {"raise KeyError(f'no {order.id}', 1)  ->  nothing"}
    assert told("def f(a):\n    refuse(a, 1)\ndef refuse(a, b) -> NoReturn: ...") == {
        "refuse(a, 1)  ->  nothing"
    }


def test_each_change_makes_another_program() -> None:
    programs = [ast.unparse(changed(FEE, number)) for number in range(len(changes(ast.parse(FEE))))]

    assert len({ast.unparse(ast.parse(FEE)), *programs}) == len(programs) + 1 > 10


def test_a_module_that_counts_its_lines_does_what_it_did() -> None:
    lines: set[int] = set()
    space: dict[str, object] = {"hit": lines.add}

    exec(compile(with_hits(FEE, "hit"), "fee", "exec"), space)

    assert (space["fee"](9), lines) == (5, {6, 8, 11})  # type: ignore[operator]
    assert (space["fee"].__doc__, space["fee"](99), lines) == ("Give it in euros.", 0, {6, 7, 8, 11})  # type: ignore[operator]


def test_a_test_of_a_servers_url_needs_no_server() -> None:
    ids = [
        "t.py::t[postgres]",
        "t.py::t[a-postgres-bare]",
        "t.py::t[postgresql://h-d]",
        "t.py::t[postgres+x-y]",
        "t.py::postgres",
    ]

    assert [is_for_a_server(test) for test in ids] == [True, True, False, False, False]


def test_a_change_that_no_test_notices_survives_and_the_others_do_not(tmp_path: Path) -> None:
    for name, text in (
        ("till/fee.py", FEE),
        ("tests/test_fee.py", TESTS),
        ("pytest.ini", "[pytest]\npythonpath = .\naddopts = --import-mode=importlib\n"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}

    with start(
        *("-c", PROGRAM, "--seed", "3", "--sample", "8"),
        cwd=tmp_path,
        env=environment,
        stdout=PIPE,
        stderr=PIPE,
    ) as process:
        out, err = process.communicate()

    figures = json.loads(out.splitlines()[-1])
    assert (figures["changes"], figures["noticed"], process.returncode) == (8, 7, 1), err.decode()
    assert figures["violations"] == ["till: 87.5 % of 8 changes are noticed, 90 % should be"]
    survivors = (tmp_path / ".campaign" / "mutants-survivors.txt").read_text()
    assert survivors == "till/fee.py:11 [fee_spared] 40  ->  41  (2 tests)\n"
