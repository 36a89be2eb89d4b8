"""The names of a module, function or class: what each may be bound to, and where to look next."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from onceward.check.values import Value

if TYPE_CHECKING:
    from onceward.check.project import Module

Kind = Literal["import", "from", "def", "class", "expr", "with", "param", "other"]


@dataclass(frozen=True)
class Binding:
    """One place that gives a name its value.

    Attributes:
        kind: how.
        node: the definition, or the expression, if there is one.
        annotation: what the place says about it.
        text: the dotted path of an import.
        level: how many dots an import begins with.
    """

    kind: Kind
    node: ast.AST | None = None
    annotation: ast.expr | None = None
    text: str = ""
    level: int = 0


@dataclass(eq=False)
class Scope:
    """The names of one piece of code.

    Attributes:
        module: the file.
        node: the module, function, lambda or class.
        parent: where names are looked up that are not here.
        given: what parameters are known to be, by the call that is followed.
    """

    module: Module
    node: ast.AST
    parent: Scope | None = None
    given: dict[str, Value] = field(default_factory=dict)

    def bindings(self, name: str) -> list[Binding]:
        """Give the places that give a name its value in this code."""
        return _tables(self.node).get(name, [])

    @property
    def declared_global(self) -> set[str]:
        """Give the names that the code takes from its module."""
        return {name for node in own_nodes(self.node) if isinstance(node, ast.Global) for name in node.names}

    def top(self) -> Scope:
        """Give the module's scope."""
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Give the nodes of a piece of code, those of functions and classes within it left out."""
    if isinstance(node, ast.Lambda):
        waiting: list[ast.AST] = [node.body]
    else:
        waiting = list(getattr(node, "body", []))
    waiting.reverse()
    while waiting:
        one = waiting.pop()
        yield one
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += [*one.decorator_list, *one.args.defaults]
        elif not isinstance(one, ast.Lambda | ast.ClassDef):
            waiting += reversed(list(ast.iter_child_nodes(one)))


_known: dict[ast.AST, dict[str, list[Binding]]] = {}


def _tables(node: ast.AST) -> dict[str, list[Binding]]:
    found = _known.get(node)
    if found is None:
        found = _known[node] = {}
        for name, binding in _bound(node):
            found.setdefault(name, []).append(binding)
    return found


def _bound(node: ast.AST) -> Iterator[tuple[str, Binding]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        yield from ((one.arg, Binding("param", annotation=one.annotation)) for one in every)
        for rest in (node.args.vararg, node.args.kwarg):
            if rest is not None:
                yield rest.arg, Binding("other")
    for one in own_nodes(node):
        if isinstance(one, ast.Import):
            for alias in one.names:
                first = alias.name.partition(".")[0]
                yield alias.asname or first, Binding("import", text=alias.name if alias.asname else first)
        elif isinstance(one, ast.ImportFrom):
            for alias in one.names:
                origin = Binding("from", one, text=alias.name, level=one.level)
                yield alias.asname or alias.name, origin
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            yield one.name, Binding("def", one)
        elif isinstance(one, ast.ClassDef):
            yield one.name, Binding("class", one)
        elif isinstance(one, ast.Assign):
            for target in one.targets:
                yield from _assigned(target, one.value)
        elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            yield one.target.id, Binding("expr", one.value, annotation=one.annotation)
        elif isinstance(one, ast.NamedExpr):
            yield one.target.id, Binding("expr", one.value)
        elif isinstance(one, ast.withitem) and one.optional_vars is not None:
            if isinstance(one.optional_vars, ast.Name):
                yield one.optional_vars.id, Binding("with", one.context_expr)
            else:
                yield from _unknown_names(one.optional_vars)
        elif isinstance(one, ast.For | ast.AsyncFor | ast.comprehension):
            yield from _unknown_names(one.target)
        elif isinstance(one, ast.ExceptHandler) and one.name:
            yield one.name, Binding("other")


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, Binding]]:
    if isinstance(target, ast.Name):
        yield target.id, Binding("expr", value)
    elif isinstance(target, ast.Tuple | ast.List):
        pairs = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
        if isinstance(value, ast.Tuple | ast.List) and pairs:
            for one, its in zip(target.elts, value.elts, strict=True):
                yield from _assigned(one, its)
        else:
            yield from _unknown_names(target)


def _unknown_names(target: ast.expr) -> Iterator[tuple[str, Binding]]:
    for node in ast.walk(target):
        if isinstance(node, ast.Name):
            yield node.id, Binding("other")
