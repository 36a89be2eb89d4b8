"""Code that runs though no call of it is written: properties, operators of objects, decorators, `with`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from onceward.check.scopes import Scope, own_nodes
from onceward.check.values import UNKNOWN, Function, Named, Object, Value

if TYPE_CHECKING:
    from onceward.check.places import Place
    from onceward.check.resolve import Resolver
    from onceward.check.walk import Walk

_ENTERS = ("__enter__", "__aenter__")
_EXITS = ("__exit__", "__aexit__")

_DATA = ast.Constant | ast.JoinedStr | ast.Dict | ast.List | ast.Tuple | ast.Set | ast.BinOp | ast.Compare
_MAY_BE_CALLED = ("Callable", "Any", "object", "type", "Type", "Awaitable", "Coroutine")


def read(walk: Walk, node: ast.AST, scope: Scope, place: Place) -> None:
    """Follow what reading an attribute, or an item, of an object of the app runs."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        found = walk.resolver.value(node, scope, as_written=True)
        if isinstance(found, Function) and found.is_property and isinstance(found.receiver, Object):
            walk.follow(found, _self_of(found), place.through(scope.module, node))
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        operator(walk, walk.resolver.value(node.value, scope), "__getitem__", node, scope, place)


def operator(walk: Walk, owner: Value, name: str, node: ast.AST, scope: Scope, place: Place) -> None:
    """Follow a method of an object that Python calls by itself, such as ``__call__``."""
    if not isinstance(owner, Object):
        return
    found = walk.resolver.member(owner, name)
    if isinstance(found, Function):
        walk.follow(found, _self_of(found), place.through(scope.module, node))


def managed(walk: Walk, node: ast.With | ast.AsyncWith, scope: Scope, place: Place) -> None:
    """Follow how the objects of a ``with`` begin, and how they end, which is as a ``finally``."""
    for item in node.items:
        owner = walk.resolver.value(item.context_expr, scope)
        for name in _ENTERS:
            operator(walk, owner, name, item.context_expr, scope, place)
        for name in _EXITS:
            operator(walk, owner, name, item.context_expr, scope, replace(place, in_finally=True))


def around(walk: Walk, function: Function, place: Place) -> None:
    """Follow what a function's decorators, where they are the app's own, put around it."""
    for decorator in getattr(function.node, "decorator_list", []):
        made = walk.resolver.value(decorator, function.scope)
        if not isinstance(made, Function) or made.node is function.node:
            continue
        wrapper = walk.resolver.returned(made)
        if isinstance(wrapper, Function) and wrapper.node is not function.node:
            walk.follow(wrapper, {}, place)


def is_data(function: Function, resolver: Resolver) -> bool:
    """Say whether what a function returns is surely nothing that a step could call."""
    node = function.node
    if isinstance(node, ast.Lambda) or node.decorator_list:
        return False
    if resolver.returned(function) not in (UNKNOWN, Named("pathlib.Path()"), Named("decimal.Decimal()")):
        return False
    if node.returns is not None:
        names = {one.id for one in ast.walk(node.returns) if isinstance(one, ast.Name)}
        names |= {one.attr for one in ast.walk(node.returns) if isinstance(one, ast.Attribute)}
        is_text = isinstance(node.returns, ast.Constant) and isinstance(node.returns.value, str)
        return _is_builtin_data(names) and not is_text and not names & set(_MAY_BE_CALLED)
    values = list(_values(node))
    return bool(values) and all(isinstance(one, _DATA) for one in values)


def _values(node: ast.AST) -> Iterator[ast.expr]:
    for one in own_nodes(node):
        if isinstance(one, ast.Return) and one.value is not None:
            yield one.value


def _is_builtin_data(names: set[str]) -> bool:
    return names <= {
        "str",
        "int",
        "float",
        "bool",
        "bytes",
        "dict",
        "list",
        "tuple",
        "set",
        "Decimal",
        "Path",
    }


def _self_of(function: Function) -> dict[str, Value]:
    names = [one.arg for one in (*function.node.args.posonlyargs, *function.node.args.args)]
    return {names[0]: function.receiver} if names and function.receiver is not None else {}
