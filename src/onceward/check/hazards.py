"""What goes wrong between steps without any effect: forgotten awaits, swallowed stops, unsure order."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from onceward.check.scopes import Scope, own_nodes
from onceward.check.values import Function, ItemStep, Named, StepFunction, Verb

if TYPE_CHECKING:
    from onceward.check.places import Place
    from onceward.check.walk import Walk

_GATHERERS = {
    "gather",
    "wait",
    "wait_for",
    "as_completed",
    "create_task",
    "ensure_future",
    "shield",
    "start_soon",
    "append",
    "add",
    "list",
    "tuple",
    "set",
    "extend",
    "enumerate",
    "zip",
}
_TAKES_VALUES = {
    "len",
    "str",
    "int",
    "float",
    "bool",
    "print",
    "repr",
    "sorted",
    "sum",
    "isinstance",
    "dict",
    "max",
    "min",
}
_MUTATORS = {
    "append",
    "extend",
    "insert",
    "add",
    "update",
    "pop",
    "popitem",
    "remove",
    "discard",
    "clear",
    "setdefault",
    "appendleft",
    "popleft",
}


def forgotten_awaits(walk: Walk, function: Function, scope: Scope, place: Place) -> None:
    """Report verbs and async steps whose call is never awaited."""
    if not function.is_async:
        return
    parents = {child: node for node in _with_root(function.node) for child in ast.iter_child_nodes(node)}
    for node in own_nodes(function.node):
        if not isinstance(node, ast.Call):
            continue
        if _makes_coroutine(walk, node, scope):
            is_lost = _is_lost(node, parents, function.node)
        else:
            called = walk.resolver.value(node.func, scope)
            is_lost = isinstance(called, Function) and called.is_async and _is_dropped(node, parents, called)
        if is_lost:
            written = ast.unparse(node.func)
            walk.report(scope.module, node, "missing-await", f"{written}(…) is not awaited", place)


def _is_dropped(call: ast.Call, parents: dict[ast.AST, ast.AST], called: Function) -> bool:
    """Say whether the coroutine of an async function of the app's own goes nowhere."""
    is_generator = any(isinstance(one, ast.Yield | ast.YieldFrom) for one in own_nodes(called.node))
    return isinstance(parents.get(call), ast.Expr) and not is_generator


def _with_root(root: ast.AST) -> list[ast.AST]:
    return [root, *own_nodes(root)]


def _makes_coroutine(walk: Walk, call: ast.Call, scope: Scope) -> bool:
    target = walk.resolver.value(call.func, scope)
    if isinstance(target, Verb):
        return True
    if isinstance(target, ItemStep):
        return target.step.function.is_async
    return isinstance(target, StepFunction) and target.function.is_async


def _is_lost(call: ast.expr, parents: dict[ast.AST, ast.AST], root: ast.AST) -> bool:
    parent = parents.get(call)
    if isinstance(parent, ast.Expr | ast.Attribute | ast.BinOp | ast.Compare | ast.BoolOp | ast.UnaryOp):
        return True
    if isinstance(parent, ast.Subscript | ast.FormattedValue | ast.For | ast.If | ast.While | ast.Return):
        return not (isinstance(parent, ast.For) and parent.iter is not call)
    if isinstance(parent, ast.Call):
        name = _name_of(parent.func)
        return call in parent.args and name in _TAKES_VALUES
    target: ast.expr | None = None
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        target = parent.targets[0]
    elif isinstance(parent, ast.AnnAssign | ast.NamedExpr):
        target = parent.target
    if not isinstance(target, ast.Name):
        return isinstance(target, ast.Tuple)
    return not _is_awaited_later(target.id, parents, root)


def _is_awaited_later(name: str, parents: dict[ast.AST, ast.AST], root: ast.AST) -> bool:
    for node in ast.walk(root):
        if not isinstance(node, ast.Name) or node.id != name or not isinstance(node.ctx, ast.Load):
            continue
        parent = parents.get(node)
        if parent is None:  # in a function of its own, which may await it
            return True
        if isinstance(
            parent, ast.Await | ast.List | ast.Tuple | ast.Set | ast.Starred | ast.Dict | ast.Yield
        ):
            return True
        if isinstance(parent, ast.Call) and node is not parent.func and _name_of(parent.func) in _GATHERERS:
            return True
    return False


def _name_of(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def swallowed(walk: Walk, node: ast.Try | ast.TryStar, scope: Scope, place: Place) -> None:
    """Report handlers that would catch a run's suspension or cancellation."""
    touches = any(
        isinstance(one, ast.Await | ast.AsyncWith | ast.AsyncFor)
        or (
            isinstance(one, ast.Call)
            and isinstance(walk.resolver.value(one.func, scope), Verb | StepFunction)
        )
        for statement in node.body
        for one in ast.walk(statement)
    )
    if not touches:
        return
    for handler in node.handlers:
        caught = _caught(walk, handler, scope)
        raises = any(isinstance(one, ast.Raise) for statement in handler.body for one in ast.walk(statement))
        if caught is not None and not raises:
            walk.report(scope.module, handler, "swallowed-stop", f"`{caught}` without `raise`", place)
            return


def _caught(walk: Walk, handler: ast.ExceptHandler, scope: Scope) -> str | None:
    if handler.type is None:
        return "except:"
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    for one in types:
        found = walk.resolver.value(one, scope)
        path = found.path if isinstance(found, Named) else ""
        is_ours = path.startswith("onceward.") and path.rpartition(".")[2] in {"Suspended", "RunCancelled"}
        if (
            path in {"BaseException", "asyncio.CancelledError", "asyncio.exceptions.CancelledError"}
            or is_ours
        ):
            return f"except {ast.unparse(one)}"
    return None


def unordered(walk: Walk, node: ast.For | ast.AsyncFor, scope: Scope, place: Place) -> None:
    """Report a loop over a set in which steps are called."""
    if not _is_set(walk, node.iter, scope):
        return
    for statement in node.body:
        for one in ast.walk(statement):
            if isinstance(one, ast.Call) and isinstance(
                walk.resolver.value(one.func, scope), Verb | StepFunction | ItemStep
            ):
                what = f"Steps are called in a loop over the set {ast.unparse(node.iter)[:60]}"
                walk.report(scope.module, node.iter, "set-order", what, place)
                return


def _is_set(walk: Walk, node: ast.expr, scope: Scope, depth: int = 0) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"set", "frozenset"}
    ):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
        return _is_set(walk, node.left, scope, depth) or _is_set(walk, node.right, scope, depth)
    if isinstance(node, ast.Name) and depth < 3:
        at: Scope | None = scope
        while at is not None and not at.bindings(node.id):
            at = at.parent
        bindings = [] if at is None else at.bindings(node.id)
        return bool(bindings) and all(
            isinstance(one.node, ast.expr) and _is_set(walk, one.node, scope, depth + 1) for one in bindings
        )
    return False


def changed_globals(walk: Walk, scope: Scope, place: Place) -> None:
    """Report changes of what belongs to the module."""
    top, declared = scope.top(), scope.declared_global
    for node in own_nodes(scope.node):
        name: str | None = None
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Name) and target.id in declared:
                name = target.id
            elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                name = target.value.id if _is_global(target.value.id, scope, top) else None
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _MUTATORS
        ):
            owner = node.func.value
            if isinstance(owner, ast.Name) and _is_global(owner.id, scope, top):
                name = owner.id if _is_container(walk, owner, scope) else None
        if name is not None:
            walk.report(
                scope.module, node, "global-state", f"{name}, of the module, is changed outside a step", place
            )


def _is_global(name: str, scope: Scope, top: Scope) -> bool:
    at: Scope | None = scope
    while at is not None:
        if name in at.given:
            return False
        if at.bindings(name):
            return at is top
        at = at.parent
    return False


def _is_container(walk: Walk, node: ast.Name, scope: Scope) -> bool:
    for binding in scope.top().bindings(node.id):
        value = binding.node
        if isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp):
            return True
        if isinstance(value, ast.Call):
            found = walk.resolver.value(value, scope)
            names = {"dict()", "list()", "set()", "collections.defaultdict()", "collections.deque()"}
            names |= {"collections.Counter()", "collections.OrderedDict()"}
            if isinstance(found, Named) and found.path in names:
                return True
    return False
