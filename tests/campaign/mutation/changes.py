"""The changes that a program can be made wrong by, one at a time: what `tests.campaign.mutants` draws from.

A change is small and compiles: a comparison turned or off by one, ``and`` for ``or``, a ``not`` out or
in, a branch never or always taken, another constant, a statement left out, nothing returned, two
arguments swapped. What only people read is left as it is (docstrings, annotations, the words of errors
and logs), and so is what guards against a programmer: assertions, the options of dataclasses and of ``zip``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

SHOWN_CHARS = 60

_TURNED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_RECKONED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_FOR_PEOPLE = {"annotation", "returns", "decorator_list", "type_params", "msg"}
_FOR_TYPES = {"Annotated", "Literal", "NewType", "ParamSpec", "TypeVar", "TypeVarTuple", "cast"}
_LOGS = {"log", "_log", "logger", "_logger", "warnings"}
_GUARDS = {"strict", "slots", "frozen", "kw_only", "repr", "compare", "stacklevel"}
_EITHER_WAY = {"intersection", "isinstance", "issubclass", "max", "min", "print", "union"}
_UNREAD = {"__all__", "__slots__", "__match_args__"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Change:
    """One change of one tree; `make` makes it, once.

    Attributes:
        line: of the statement, as `lines_hit` counts them.
        at: the line of the expression itself.
        scope: the function or class it is in, by its qualified name; empty at the top.
        tested_by: lines that run when the change can be noticed; empty for what runs at the import.
        names: what the statement binds, where it runs at the import.
        what: it, in a few words.
    """

    line: int
    at: int
    scope: str
    tested_by: frozenset[int]
    names: frozenset[str]
    what: str
    owner: ast.AST
    field: str
    index: int | None
    new: Any

    def make(self) -> None:
        """Change the tree that this was found in."""
        if self.index is None:
            setattr(self.owner, self.field, self.new)
        else:
            getattr(self.owner, self.field)[self.index] = self.new


def changes(tree: ast.Module) -> list[Change]:
    """Give every change of a module, always in the same order."""
    return list(_Finder(tree).body(tree))


def changed(source: str, number: int) -> ast.Module:
    """Give the module with one of its changes made."""
    tree = ast.parse(source)
    changes(tree)[number].make()
    return ast.fix_missing_locations(tree)


class _Finder:
    """Walks a module from the top down and knows where it is."""

    def __init__(self, tree: ast.Module) -> None:
        self.scope: tuple[str, ...] = ()
        self.line = 0
        self.tested_by: frozenset[int] = frozenset()
        self.names: frozenset[str] = frozenset()
        self.refusing = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, Function) and node.returns and "NoReturn" in ast.unparse(node.returns)
        }

    def body(self, owner: ast.AST) -> Iterator[Change]:
        """Give the changes of all statements in *owner*."""
        for field in ("body", "orelse", "finalbody"):
            for index, statement in enumerate(getattr(owner, field, ())):
                yield from self.statement(statement, owner, field, index)

    def statement(self, node: ast.stmt, owner: ast.AST, field: str, index: int) -> Iterator[Change]:
        if _is_left(node) or (isinstance(node, Function) and node.name in self.refusing):
            return
        before = self.line, self.tested_by, self.names
        self.line = node.lineno
        if isinstance(node, Function | ast.ClassDef):
            yield from self.scoped(node)
        else:
            is_inside = bool(self.tested_by)
            self.tested_by = frozenset({node.lineno}) if is_inside else frozenset()
            self.names |= frozenset(
                part.id
                for part in ast.walk(node)
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
            )
            if _can_go(node):
                yield self.change(node, owner, field, index, ast.copy_location(ast.Pass(), node), "nothing")
            yield from self.expressions(node)
            yield from self.body(node)
            for handler in getattr(node, "handlers", getattr(node, "cases", ())):
                yield from self.body(handler)
        self.line, self.tested_by, self.names = before

    def scoped(self, node: Function | ast.ClassDef) -> Iterator[Change]:
        around, self.scope = self.scope, (*self.scope, node.name)
        if isinstance(node, ast.ClassDef):
            self.names |= {node.name}
        else:
            self.tested_by = _lines(node)
            yield from self.expressions(node.args)  # its defaults
        yield from self.body(node)
        self.scope = around

    def expressions(self, owner: ast.AST) -> Iterator[Change]:
        """Give the changes of the expressions right below a statement or an expression."""
        for field, value in ast.iter_fields(owner):
            if field in _FOR_PEOPLE or (isinstance(owner, ast.Raise) and field == "exc"):
                continue
            for index, node in enumerate(value) if isinstance(value, list) else ((None, value),):
                if isinstance(node, ast.expr):
                    yield from self.expression(node, owner, field, index)
                elif isinstance(node, ast.keyword) and node.arg not in _GUARDS:
                    yield from self.expression(node.value, node, "value", None)
                elif isinstance(node, ast.comprehension | ast.withitem):
                    yield from self.expressions(node)

    def expression(self, node: ast.expr, owner: ast.AST, field: str, index: int | None) -> Iterator[Change]:
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Call) and self.is_for_people(node)):
            return
        if isinstance(node, ast.Subscript) and _last_name(node.value) in _FOR_TYPES:
            return
        for new in _others(node, owner, field):
            yield self.change(node, owner, field, index, new)
        yield from self.expressions(node)

    def is_for_people(self, call: ast.Call) -> bool:
        """Say whether a call makes a log, a refusal or a type: its arguments are words."""
        name = _last_name(call.func)
        by = _last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        return name in self.refusing or name in _FOR_TYPES or by in _LOGS

    def change(
        self,
        node: ast.expr | ast.stmt,
        owner: ast.AST,
        field: str,
        index: int | None,
        new: ast.AST,
        words: str = "",
    ) -> Change:
        what = f"{_shown(node)}  ->  {words or _shown(new)}"
        scope = ".".join(self.scope)
        return Change(
            self.line, node.lineno, scope, self.tested_by, self.names, what, owner, field, index, new
        )


def _others(node: ast.expr, owner: ast.AST, field: str) -> Iterator[ast.expr]:
    """Give what may stand in place of an expression."""
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for other in _TURNED[type(operator)]:
                ops = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                yield ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in _RECKONED and not _is_text_or_type(node):
        yield ast.BinOp(node.left, _RECKONED[type(node.op)](), node.right)
    elif isinstance(node, ast.Constant):
        yield from _other_constants(node.value)
    elif isinstance(node, ast.Call) and len(node.args) > 1 and _last_name(node.func) not in _EITHER_WAY:
        first, second = node.args[:2]
        is_same = ast.dump(first) == ast.dump(second)
        if not (isinstance(first, ast.Starred) or isinstance(second, ast.Starred) or is_same):
            yield ast.Call(node.func, [second, first, *node.args[2:]], node.keywords)
    if field in ("test", "ifs") and not isinstance(node, ast.Constant):
        if not isinstance(owner, ast.While):
            yield ast.Constant(True)
        if field == "test":
            yield ast.Constant(False)
        if not isinstance(node, ast.Compare) and not (
            isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        ):
            yield ast.UnaryOp(ast.Not(), node)
    if isinstance(owner, ast.Return) and not isinstance(node, ast.Constant):
        yield ast.Constant(None)


def _other_constants(value: object) -> Iterator[ast.expr]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float):
        yield ast.Constant(value + 1)
    elif isinstance(value, bytes):
        yield ast.Constant(value + b"x")
    elif isinstance(value, str) and " " not in value:  # a sentence is for people
        yield ast.Constant(value + "x")


def _is_left(node: ast.stmt) -> bool:
    """Say whether a statement is for people, types, programmers or other versions of Python alone."""
    if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.Expr):
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        by = (
            value.func.value
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)
            else None
        )
        return isinstance(value, ast.Constant) or (by is not None and _last_name(by) in _LOGS)
    if isinstance(node, ast.If):
        test = ast.unparse(node.test)  # the second decides for another Python than this
        return "TYPE_CHECKING" in test or "version_info" in test
    if isinstance(node, ast.ClassDef):
        return any(_last_name(base) == "Protocol" for base in node.bases)
    if isinstance(node, Function):
        return node.name == "__repr__" or any(_last_name(by) == "overload" for by in node.decorator_list)
    if isinstance(node, ast.Assign | ast.AnnAssign):
        is_alias = isinstance(node, ast.AnnAssign) and _last_name(node.annotation) == "TypeAlias"
        return is_alias or any(name in _UNREAD for name in map(_last_name, _targets(node)))
    return False


def _can_go(node: ast.stmt) -> bool:
    """Say whether a program without the statement still has all of its names."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call | ast.Await)
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in _targets(node))
    return isinstance(node, ast.AugAssign | ast.Raise | ast.Continue | ast.Break | ast.Delete)


def _targets(node: ast.Assign | ast.AnnAssign) -> Sequence[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _is_text_or_type(node: ast.BinOp) -> bool:
    """Say whether an operator joins texts, or types into a union: neither can be reckoned otherwise."""
    sides = (node.left, node.right)
    if any(isinstance(side, ast.JoinedStr) for side in sides):
        return True
    if any(isinstance(side, ast.Constant) and isinstance(side.value, str | bytes | None) for side in sides):
        return True
    return isinstance(node.op, ast.BitOr) and all(_last_name(side).istitle() for side in sides)


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    return node.id if isinstance(node, ast.Name) else ""


def _shown(node: ast.AST) -> str:
    text = " ".join(ast.unparse(ast.fix_missing_locations(node)).split())
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"


# --- which lines run ----------------------------------------------------------------------------


def _lines(function: Function) -> frozenset[int]:
    """Give the lines of the statements in a function, those of functions in it included."""
    return frozenset(
        node.lineno for part in function.body for node in ast.walk(part) if isinstance(node, ast.stmt)
    )


def lines_naming(tree: ast.Module, names: frozenset[str]) -> frozenset[int]:
    """Give the lines of all functions that name one of *names*."""
    return frozenset(
        line
        for function in ast.walk(tree)
        if isinstance(function, Function)
        and names & {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        for line in _lines(function)
    )


def with_hits(source: str, hit: str) -> ast.Module:
    """Give a module that calls the global *hit* with its line before each statement of a function."""
    tree = ast.parse(source)
    for function in [node for node in ast.walk(tree) if isinstance(node, Function)]:
        for owner in [
            node for node in ast.walk(function) if node is function or not isinstance(node, Function)
        ]:
            for field in ("body", "orelse", "finalbody"):
                statements = getattr(owner, field, None)
                if isinstance(statements, list) and not _is_marked(statements, hit):
                    setattr(owner, field, _marked(statements, hit))
    return ast.fix_missing_locations(tree)


def _is_marked(statements: list[ast.stmt], hit: str) -> bool:
    return any(
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _last_name(node.value) == hit
        for node in statements
    )


def _marked(statements: list[ast.stmt], hit: str) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for node in statements:
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):  # no docstring
            call = ast.Call(ast.Name(hit, ast.Load()), [ast.Constant(node.lineno)], [])
            found.append(ast.copy_location(ast.Expr(call), node))
        found.append(node)
    return found
