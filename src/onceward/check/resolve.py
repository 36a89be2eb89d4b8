"""What an expression stands for: names and aliases followed to where they come from."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import replace

from onceward.check.project import Module, Project
from onceward.check.scopes import Binding, Scope, own_nodes
from onceward.check.values import (
    UNKNOWN,
    AppMember,
    Class,
    Function,
    FunctionNode,
    ItemOf,
    ItemStep,
    ModuleValue,
    Named,
    Object,
    StepFunction,
    TheApp,
    TheContext,
    Value,
    Verb,
    Verbs,
    WorkflowFunction,
)

DEPTH_MAX = 40

_APPS = {"App", "SyncApp"}
_CONTEXTS = {"Context", "SyncContext"}
_STEP_DECORATORS = {"step", "transaction"}
_PEERS = {"celery", "dagster", "dbos", "hatchet_sdk", "inngest", "prefect", "restate", "temporalio"}
_PATH_TO_PATH = {"with_suffix", "with_name", "with_stem", "joinpath", "relative_to", "absolute", "expanduser"}
_SAME = {"typing.cast", "copy.copy", "copy.deepcopy", "contextlib.closing", "contextlib.aclosing"}


class Resolver:
    """Finds out what expressions stand for.

    Args:
        project: where imported files come from.
    """

    def __init__(self, project: Project) -> None:
        self.project = project
        self._tops: dict[Module, Scope] = {}
        self._busy: set[tuple[int, int]] = set()
        self._depth = 0

    def top(self, module: Module) -> Scope:
        """Give the scope of a module."""
        return self._tops.setdefault(module, Scope(module, module.tree))

    # --- names -----------------------------------------------------------------------------------

    def name(self, name: str, scope: Scope) -> Value:
        """Give what a name stands for in a scope."""
        at: Scope | None = scope
        while at is not None:
            is_start = at is scope
            if name in at.given:
                return at.given[name]
            skips = isinstance(at.node, ast.ClassDef) and not is_start
            bindings = [] if skips else at.bindings(name)
            if bindings:
                return self._first(bindings, at)
            at = at.parent
        return Named(name) if hasattr(builtins, name) else UNKNOWN

    def _first(self, bindings: list[Binding], scope: Scope) -> Value:
        for binding in bindings:
            value = self._bound(binding, scope)
            if value is not UNKNOWN:
                return value
        return UNKNOWN

    def _bound(self, binding: Binding, scope: Scope) -> Value:
        key = (id(binding), id(scope))
        if key in self._busy or self._depth > DEPTH_MAX:
            return UNKNOWN
        self._busy.add(key)
        try:
            return self._value_of(binding, scope)
        finally:
            self._busy.discard(key)

    def _value_of(self, binding: Binding, scope: Scope) -> Value:
        node = binding.node
        if binding.kind == "import":
            found = self.project.imported(binding.text, 0, scope.module)
            return Named(binding.text) if found is None else ModuleValue(found)
        if isinstance(node, ast.ImportFrom):
            return self._imported(node, binding.text, scope.module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return self.decorated(node, scope)
        if isinstance(node, ast.ClassDef):
            return Class(scope.module, node, scope)
        said = UNKNOWN if binding.annotation is None else self.of_annotation(binding.annotation, scope)
        if said is not UNKNOWN or not isinstance(node, ast.expr):
            return said
        return self.value(node, scope)

    def _imported(self, node: ast.ImportFrom, name: str, origin: Module) -> Value:
        base = node.module or ""
        inner = f"{base}.{name}" if base else name
        module = self.project.imported(base, node.level, origin) if base or node.level else None
        if module is not None:
            top = self.top(module)
            if top.bindings(name):
                return self.name(name, top)
        as_module = self.project.imported(inner, node.level, origin)
        if as_module is not None:
            return ModuleValue(as_module)
        return UNKNOWN if node.level or module is not None else Named(inner)

    # --- functions and decorators ------------------------------------------------------------------

    def decorated(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> Value:
        """Give a function as its decorators make it: a step, a workflow, or itself."""
        plain = Function(scope.module, node, scope)
        for decorator in node.decorator_list:
            role = self.role(decorator, node, scope)
            if role == "workflow":
                return WorkflowFunction(plain)
            if role in _STEP_DECORATORS:
                return StepFunction(plain)
            if role == "undo":
                return UNKNOWN
        return plain

    def role(self, decorator: ast.expr, node: FunctionNode | None, scope: Scope) -> str | None:
        """Give what a decorator of an app makes of a function: ``workflow``, ``step`` …, or None."""
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if not isinstance(target, ast.Attribute) or target.attr not in {
            *_STEP_DECORATORS,
            "workflow",
            "undo",
        }:
            return None
        owner = self.value(target.value, scope)
        if owner == TheApp():
            return target.attr
        if target.attr == "undo":
            return "undo" if isinstance(owner, StepFunction) else None
        if isinstance(owner, Named):
            return None if _is_elsewhere(owner, scope) else target.attr if self._fits(node, scope) else None
        return target.attr if owner is UNKNOWN and self._fits(node, scope) else None

    def _fits(self, node: FunctionNode | None, scope: Scope) -> bool:
        """Say whether a function is one of ours, where its app cannot be found in the source."""
        if scope.module.mentions_us():
            return True
        if node is None or isinstance(node, ast.Lambda) or not node.args.args:
            return False
        annotation = node.args.args[0].annotation
        return annotation is not None and self.of_annotation(annotation, scope) == TheContext()

    # --- expressions -------------------------------------------------------------------------------

    def value(self, node: ast.expr, scope: Scope, *, as_written: bool = False) -> Value:
        """Give what an expression stands for; of a property its function, if *as_written*."""
        self._depth += 1
        try:
            found = UNKNOWN if self._depth > DEPTH_MAX else self._value(node, scope)
            is_read = isinstance(found, Function) and found.is_property and isinstance(found.receiver, Object)
            return self.returned(found) if is_read and not as_written else found  # type: ignore[arg-type]
        finally:
            self._depth -= 1

    def _value(self, node: ast.expr, scope: Scope) -> Value:
        if isinstance(node, ast.Name):
            return self.name(node.id, scope)
        if isinstance(node, ast.Attribute):
            return self.member(self.value(node.value, scope), node.attr)
        if isinstance(node, ast.Call):
            return self.result(node, scope)
        if isinstance(node, ast.Lambda):
            return Function(scope.module, node, scope)
        if isinstance(node, ast.Await | ast.NamedExpr | ast.Subscript | ast.Starred):
            found = self.value(node.value, scope)
            is_item = isinstance(node, ast.Subscript) and not isinstance(found, Named)
            return UNKNOWN if is_item else found
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            left = self.value(node.left, scope)
            return left if isinstance(left, Named) and left.path.startswith("pathlib.") else UNKNOWN
        if isinstance(node, ast.IfExp | ast.BoolOp):
            parts = [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.values
            return next((found for one in parts if (found := self.value(one, scope)) is not UNKNOWN), UNKNOWN)
        return UNKNOWN

    def result(self, call: ast.Call, scope: Scope) -> Value:
        """Give what a call gives."""
        target = self.value(call.func, scope)
        if isinstance(target, Named):
            if target.path == "functools.partial" and call.args:
                made = self.value(call.args[0], scope)
                is_known = isinstance(made, Function)
                return replace(made, is_partial=True) if is_known else made  # type: ignore[call-arg]
            if target.path in _SAME and call.args:
                return self.value(call.args[-1] if target.path == "typing.cast" else call.args[0], scope)
            if _is_our(target.path, _APPS):
                return TheApp()
            is_path = target.path.startswith("pathlib.") and target.path.rpartition(".")[2] in _PATH_TO_PATH
            return Named("pathlib.Path()" if is_path else f"{target.path}()")
        if isinstance(target, Class):
            return TheApp() if self._is_app(target) else Object(target)
        if isinstance(target, ItemOf):
            return ItemStep(target.step)
        if isinstance(target, Function):
            return self.returned(target)
        return UNKNOWN

    def returned(self, function: Function) -> Value:
        """Give what a function gives back, as far as its annotation or its only `return` says it."""
        node = function.node
        inner = Scope(function.module, node, function.scope)
        if isinstance(node, ast.Lambda):
            return UNKNOWN
        if node.returns is not None:
            return self.of_annotation(node.returns, function.scope)
        if function.receiver is not None and node.args.args:
            inner.given[node.args.args[0].arg] = function.receiver
        given = [
            one.value
            for one in own_nodes(node)
            if isinstance(one, ast.Return | ast.Yield) and one.value is not None
        ]
        return self.value(given[0], inner) if len(given) == 1 else UNKNOWN

    def _is_app(self, cls: Class) -> bool:
        bases = [self.value(base, cls.scope) for base in cls.node.bases]
        return any(isinstance(base, Named) and _is_our(base.path, _APPS) for base in bases)

    def member(self, owner: Value, name: str) -> Value:
        """Give an attribute of something."""
        if isinstance(owner, Named):
            return Named(f"{owner.path}.{name}")
        if isinstance(owner, TheContext):
            return Verbs() if name == "step" else UNKNOWN
        if isinstance(owner, Verbs):
            return Verb(name)
        if isinstance(owner, TheApp):
            return owner if name == "sync" else AppMember(name)
        if isinstance(owner, StepFunction):
            return ItemOf(owner) if name == "item" else owner.function if name == "function" else UNKNOWN
        if isinstance(owner, ModuleValue):
            return self.name(name, self.top(owner.module))
        if isinstance(owner, Object):
            return self._attribute(owner.of, name, owner)
        if isinstance(owner, Class):
            return self._attribute(owner, name, owner)
        return UNKNOWN

    def _attribute(self, cls: Class, name: str, receiver: Value) -> Value:
        inner = Scope(cls.module, cls.node, cls.scope)
        for binding in inner.bindings(name):
            found = self._bound(binding, inner)
            if isinstance(found, Function):
                is_static = any(
                    isinstance(one, ast.Name) and one.id == "staticmethod"
                    for one in getattr(found.node, "decorator_list", [])
                )
                return Function(found.module, found.node, cls.scope, None if is_static else receiver)
            if found is not UNKNOWN:
                return found
        for value, scope in self._set_on_self(cls, name):
            found = self.value(value, scope)
            if found is not UNKNOWN:
                return found
        for base in cls.node.bases:
            its = self.value(base, cls.scope)
            if isinstance(its, Class) and its.node is not cls.node:
                found = self._attribute(its, name, receiver)
                if found is not UNKNOWN:
                    return found
        return Named(f"{cls.node.name}.objects") if name == "objects" else UNKNOWN

    def _set_on_self(self, cls: Class, name: str) -> Iterator[tuple[ast.expr, Scope]]:
        for method in cls.node.body:
            if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) or not method.args.args:
                continue
            own = method.args.args[0].arg
            for node in ast.walk(method):
                targets = node.targets if isinstance(node, ast.Assign) else []
                if isinstance(node, ast.AnnAssign) and node.value is not None:
                    targets = [node.target]
                for target in targets:
                    is_it = isinstance(target, ast.Attribute) and target.attr == name
                    if is_it and isinstance(target.value, ast.Name) and target.value.id == own:  # type: ignore[attr-defined]
                        yield node.value, Scope(cls.module, method, cls.scope)  # type: ignore[attr-defined]

    # --- annotations -------------------------------------------------------------------------------

    def of_annotation(self, annotation: ast.expr, scope: Scope) -> Value:
        """Give what a value annotated like this stands for."""
        node = unquoted(annotation)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            sides = (self.of_annotation(node.left, scope), self.of_annotation(node.right, scope))
            return next((side for side in sides if side is not UNKNOWN), UNKNOWN)
        if isinstance(node, ast.Subscript):
            outer = self.value(node.value, scope)
            last = outer.path.rpartition(".")[2] if isinstance(outer, Named) else ""
            if last in {"Optional", "Annotated", "Final", "ClassVar", "Awaitable"}:
                first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
                return self.of_annotation(first, scope)
            return UNKNOWN
        if not isinstance(node, ast.Name | ast.Attribute):
            return UNKNOWN
        found = self.value(node, scope)
        if isinstance(found, Named):
            if _is_our(found.path, _CONTEXTS):
                return TheContext()
            if _is_our(found.path, _APPS):
                return TheApp()
            return UNKNOWN if "." not in found.path else Named(f"{found.path}()")
        if isinstance(found, Class):
            return TheApp() if self._is_app(found) else Object(found)
        return UNKNOWN


def unquoted(annotation: ast.expr) -> ast.expr:
    """Give an annotation that is written as text as the expression that it holds."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return annotation
    return annotation


def _is_our(path: str, names: set[str]) -> bool:
    return path.partition(".")[0] == "onceward" and path.rpartition(".")[2] in names


def _is_elsewhere(owner: Named, scope: Scope) -> bool:
    """Say whether an app comes from a library, not from a file that could not be found."""
    is_peer = owner.path.partition(".")[0] in _PEERS
    return is_peer or "(" in owner.path or "." not in owner.path or not scope.module.mentions_us()
