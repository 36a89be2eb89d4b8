"""Follows the code of a workflow as a run would go through it, and looks at every call on the way.

What is handed to a step is not followed: there, everything is allowed. What is called is: functions
of the same app, in this file or another, their classes and lambdas, so that an effect is found
where it is, and told with the way there.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from dataclasses import replace

from onceward.check import hazards, hidden
from onceward.check.effects import CALLED_KEYWORDS, CALLERS, ENVIRONMENT, Effect, effect_of, guessed
from onceward.check.findings import Findings
from onceward.check.names import Names
from onceward.check.places import Place, lines_of
from onceward.check.project import Module
from onceward.check.resolve import Resolver
from onceward.check.scopes import Scope
from onceward.check.values import (
    UNKNOWN,
    AppMember,
    Class,
    Function,
    ItemStep,
    Named,
    Object,
    StepFunction,
    Value,
    Verb,
    WorkflowFunction,
)

HOPS_MAX = 12
VISITS_MAX = 3_000

_TOGETHER = {
    "gather",
    "wait",
    "as_completed",
    "create_task",
    "ensure_future",
    "start_soon",
    "run_coroutine_threadsafe",
}
_GROUPS = {"gather", "wait", "as_completed"}
_BODIES = {"run": (1,), "ensure": (1, 2)}
_BODY_KEYWORDS = {"find", "create", "check", "unknown"}


class Walk:
    """One workflow, or one step's body, followed through the source.

    Args:
        resolver: what names stand for.
        findings: where findings go.
        bodies: gathers the functions that are handed to steps.
    """

    def __init__(self, resolver: Resolver, findings: Findings, bodies: dict[ast.AST, Function]) -> None:
        self.resolver = resolver
        self.findings = findings
        self.bodies = bodies
        self.names = Names()
        self.is_async: bool | None = None  # of the workflow; None in a step's body
        self._seen: set[object] = set()

    # --- reporting ---------------------------------------------------------------------------------

    def report(
        self, module: Module, node: ast.AST, rule: str, what: str, place: Place, fix: str | None = None
    ) -> None:
        """Keep a finding, with the way there, unless a comment on the way excuses it."""
        first, last = lines_of(node)
        if module.allows(rule, first, last):
            return
        if any(hop.module.allows(rule, hop.first, hop.last) for hop in place.hops):
            return
        where = f"in {place.start}"
        if place.hops:
            begin = place.hops[0]
            where += f", which leads here from {begin.module.path.name}, line {begin.first}"
        self.findings.add(module.shown, module.path, first, rule, f"{what} {where}", fix)

    # --- functions -----------------------------------------------------------------------------------

    def follow(self, function: Function, given: dict[str, Value], place: Place) -> None:
        """Go through the body of a function."""
        node = function.node
        key = (
            node,
            tuple(sorted((name, repr(value)) for name, value in given.items())),
            place.arms,
            place.aside,
        )
        marks = (key, place.in_finally, place.is_step, place.on_loop)
        if marks in self._seen or len(place.hops) > HOPS_MAX or len(self._seen) > VISITS_MAX:
            return
        self._seen.add(marks)
        hidden.around(self, function, place)
        scope = Scope(function.module, node, function.scope, dict(given))
        if function.is_async:
            place = replace(place, on_loop=True)
        if isinstance(node, ast.Lambda):
            self.expression(node.body, scope, place)
            return
        if not place.is_step:
            hazards.forgotten_awaits(self, function, scope, place)
            hazards.changed_globals(self, scope, place)
        self.block(node.body, scope, place)

    def given(self, function: Function, call: ast.Call, scope: Scope) -> dict[str, Value]:
        """Give what a call's arguments make of a function's parameters, as far as that is known."""
        found: dict[str, Value] = {}
        if function.is_partial:
            return found
        names = [one.arg for one in (*function.node.args.posonlyargs, *function.node.args.args)]
        if function.receiver is not None and names:
            found[names.pop(0)] = function.receiver
        for name, argument in zip(names, call.args, strict=False):
            if isinstance(argument, ast.Starred):
                break
            found[name] = self.resolver.value(argument, scope)
        for keyword in call.keywords:
            if keyword.arg is not None:
                found[keyword.arg] = self.resolver.value(keyword.value, scope)
        return {name: value for name, value in found.items() if value is not UNKNOWN}

    # --- statements ----------------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt], scope: Scope, place: Place) -> None:
        """Go through statements; what follows an arm that leaves is another arm."""
        for statement in body:
            self.statement(statement, scope, place)
            if isinstance(statement, ast.If) and _leaves(statement.body):
                place = place.arm(statement, 1)
            elif isinstance(statement, ast.If) and statement.orelse and _leaves(statement.orelse):
                place = place.arm(statement, 0)

    def statement(self, node: ast.stmt, scope: Scope, place: Place) -> None:
        """Go through one statement."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for default in (*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)):
                self.expression(default, scope, place)
        elif isinstance(node, ast.ClassDef):
            return
        elif isinstance(node, ast.If):
            self.expression(node.test, scope, place)
            self.block(node.body, scope, place.arm(node, 0))
            self.block(node.orelse, scope, place.arm(node, 1))
        elif isinstance(node, ast.Match):
            self.expression(node.subject, scope, place)
            for number, case in enumerate(node.cases):
                if case.guard is not None:
                    self.expression(case.guard, scope, place)
                self.block(case.body, scope, place.arm(node, number))
        elif isinstance(node, ast.Try | ast.TryStar):
            self._try(node, scope, place)
        elif isinstance(node, ast.For | ast.AsyncFor):
            self.expression(node.iter, scope, place)
            if not place.is_step:
                hazards.unordered(self, node, scope, place)
            names = _names_in(node.target) if _goes_through(node.iter) else frozenset()
            self.block(node.body, scope, replace(place, elements=place.elements | names))
            self.block(node.orelse, scope, place)
        elif isinstance(node, ast.While):
            self.expression(node.test, scope, place)
            self.block(node.body, scope, place)
            self.block(node.orelse, scope, place)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                self.expression(item.context_expr, scope, place)
            hidden.managed(self, node, scope, place)
            self.block(node.body, scope, place)
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.expression(child, scope, place)

    def _try(self, node: ast.Try | ast.TryStar, scope: Scope, place: Place) -> None:
        if not place.is_step:
            hazards.swallowed(self, node, scope, place)
        self.block(node.body, scope, place)
        for number, handler in enumerate(node.handlers):
            self.block(handler.body, scope, place.arm(node, number + 1))
        self.block(node.orelse, scope, place.arm(node, 0))
        self.block(node.finalbody, scope, replace(place, in_finally=True))

    # --- expressions ---------------------------------------------------------------------------------

    def expression(self, node: ast.AST, scope: Scope, place: Place, *, is_awaited: bool = False) -> None:
        """Go through an expression and look at each call and read in it."""
        if isinstance(node, ast.Lambda):
            return
        if isinstance(node, ast.Await):
            self.expression(node.value, scope, place, is_awaited=True)
            return
        if isinstance(node, ast.Call):
            self.call(node, scope, place, is_awaited=is_awaited)
            return
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            names = frozenset[str]()
            for generator in node.generators:
                names |= _names_in(generator.target) if _goes_through(generator.iter) else frozenset()
            place = replace(place, elements=place.elements | names)
        elif self._reads_environment(node, scope):
            self.effect(node, "os.environ", ENVIRONMENT, scope, place)
            return
        else:
            hidden.read(self, node, scope, place)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr | ast.comprehension | ast.keyword):
                self.expression(child, scope, place)

    def _reads_environment(self, node: ast.AST, scope: Scope) -> bool:
        is_read = isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
        return is_read and self.resolver.value(node, scope) == Named("os.environ")  # type: ignore[arg-type]

    def call(self, call: ast.Call, scope: Scope, place: Place, *, is_awaited: bool = False) -> None:
        """Look at one call, at what it calls and at its arguments."""
        target = self.resolver.value(call.func, scope)
        if isinstance(target, Verb):
            self._verb(target, call, scope, place)
            return
        self._arguments(call, scope, place)
        if isinstance(call.func, ast.Attribute | ast.Call):
            self.expression(
                call.func.value if isinstance(call.func, ast.Attribute) else call.func, scope, place
            )
        if isinstance(target, StepFunction | ItemStep):
            self._step(target, call, scope, place)
        elif isinstance(target, WorkflowFunction):
            self._workflow(target, call, scope, place)
        elif isinstance(target, AppMember):
            if target.name in {"emit", "start"} and not place.is_step:
                rule = f"{target.name}-outside-step"
                self.report(scope.module, call, rule, f"{_written(call)} is called outside a step", place)
        elif isinstance(target, Function):
            self.follow(target, self.given(target, call, scope), place.through(scope.module, call))
        elif isinstance(target, Class):
            self._construct(target, call, scope, place)
        elif isinstance(target, Object):
            hidden.operator(self, target, "__call__", call, scope, place)
        elif isinstance(target, Named):
            effect = effect_of(target.path, call)
            if effect is None and isinstance(call.func, ast.Attribute) and _is_away(target.path):
                effect = guessed(_last_name(call.func.value), call.func.attr, is_awaited=is_awaited)
            if effect is not None:
                self.effect(call, _written(call), effect, scope, place)
            self._hands_on(target.path, call, scope, place)
        elif isinstance(call.func, ast.Attribute) and not place.is_step:
            effect = guessed(_last_name(call.func.value), call.func.attr, is_awaited=is_awaited)
            if effect is not None and not isinstance(target, Object):
                self.effect(call, _written(call), effect, scope, place)

    def effect(self, node: ast.AST, written: str, effect: Effect, scope: Scope, place: Place) -> None:
        """Report what a call does, where it should not."""
        if place.is_step:
            if effect.blocks and place.on_loop and effect.rule != "database-outside-step":
                self.report(
                    scope.module,
                    node,
                    "blocking-call",
                    f"{written} blocks inside async code,",
                    place,
                    _THREAD,
                )
            return
        what = f"{written} {effect.does} outside a step"
        if place.in_finally:
            self.report(
                scope.module, node, "effect-in-finally", f"{written} {effect.does} in a `finally`", place
            )
        elif effect.blocks and place.on_loop and effect.rule == "sleep-outside-step":
            self.report(scope.module, node, "blocking-call", f"{written} blocks inside async code,", place)
        else:
            self.report(scope.module, node, effect.rule, what, place)

    def _arguments(self, call: ast.Call, scope: Scope, place: Place) -> None:
        method = call.func.attr if isinstance(call.func, ast.Attribute) else _last_name(call.func)
        for number, argument in enumerate(call.args):
            at = place
            if method in _TOGETHER:
                inner = argument.value if isinstance(argument, ast.Starred) else argument
                is_mapped = isinstance(inner, ast.Call) and _last_name(inner.func) in {"map", "starmap"}
                is_built = isinstance(inner, ast.ListComp | ast.SetComp | ast.GeneratorExp)
                many = is_mapped or is_built or bool(place.elements)
                if method in _GROUPS:
                    at = place.beside(call, None if many else number)
                else:
                    at = place.beside(scope.node, None if many else call.lineno * 1000 + call.col_offset)
            self.expression(argument, scope, at)
        for keyword in call.keywords:
            self.expression(keyword.value, scope, place)

    def _verb(self, verb: Verb, call: ast.Call, scope: Scope, place: Place) -> None:
        if place.is_step:
            what = f"ctx.step.{verb.name} is called inside the body of a step,"
            self.report(scope.module, call, "step-inside-step", what, place)
            return
        bodies = _BODIES.get(verb.name, ())
        if verb.name == "run" and call.args:
            first = self.resolver.value(call.args[0], scope)
            if isinstance(first, Function | StepFunction | ItemStep):
                what = f"{_written(call)} is given {ast.unparse(call.args[0])[:60]} where the step's name belongs,"
                self.report(scope.module, call, "step-name-missing", what, place)
        for number, argument in enumerate(call.args):
            if number in bodies:
                self._body(verb, argument, scope, place)
            else:
                self.expression(argument, scope, place)
        for keyword in call.keywords:
            if bodies and keyword.arg in _BODY_KEYWORDS and verb.name == "ensure":
                self._body(verb, keyword.value, scope, place)
            else:
                self.expression(keyword.value, scope, place)
        self.names.used(call, scope, place)

    def _body(self, verb: Verb, node: ast.expr, scope: Scope, place: Place) -> None:
        found = self.resolver.value(node, scope)
        if isinstance(node, ast.Call) and not isinstance(found, ItemStep):
            called = self.resolver.value(node.func, scope)
            if isinstance(called, ItemStep):
                called = called.step
            if isinstance(called, StepFunction):
                called = called.function
            if isinstance(called, Function) and (called.is_async or hidden.is_data(called, self.resolver)):
                given = "its coroutine" if called.is_async else "what it returns"
                what = f"{_written(node)} is called and {given} given to ctx.step.{verb.name}"
                self.report(scope.module, node, "called-not-given", what, place)
                return
        if isinstance(found, StepFunction):
            found = found.function
        elif isinstance(found, ItemStep):
            found = found.step.function
        if isinstance(found, Function):
            self.bodies.setdefault(found.node, found)
        if not isinstance(node, ast.Name | ast.Lambda | ast.Attribute):
            self.expression(node, scope, place)

    def _step(self, target: StepFunction | ItemStep, call: ast.Call, scope: Scope, place: Place) -> None:
        function = target.function if isinstance(target, StepFunction) else target.step.function
        if place.is_step:
            self.follow(function, self.given(function, call, scope), place.through(scope.module, call))
            return
        if self.is_async is not None and function.is_async is not self.is_async:
            here = "an async" if self.is_async else "a plain"
            what = f"The {'async' if function.is_async else 'plain'} step {function.name} is called directly in {here} workflow"
            self.report(scope.module, call, "step-called-wrong", f"{what},", place)
        if isinstance(target, StepFunction):
            self.names.called(function.name, call, scope, place)

    def _workflow(self, target: WorkflowFunction, call: ast.Call, scope: Scope, place: Place) -> None:
        what = f"The workflow {target.function.name} is called as a function"
        self.report(scope.module, call, "workflow-called", what, place)

    def _construct(self, target: Class, call: ast.Call, scope: Scope, place: Place) -> None:
        for name in ("__init__", "__post_init__"):
            method = self.resolver.member(Object(target), name)
            if isinstance(method, Function):
                self.follow(method, self.given(method, call, scope), place.through(scope.module, call))
        given = {keyword.arg for keyword in call.keywords}
        if None in given or any(isinstance(one, ast.Starred) for one in call.args):
            return
        inner = Scope(target.module, target.node, target.scope)
        fields = [one for one in target.node.body if isinstance(one, ast.AnnAssign)]
        for one in fields[len(call.args) :]:
            if (
                isinstance(one.target, ast.Name)
                and one.target.id not in given
                and isinstance(one.value, ast.Call)
            ):
                for keyword in one.value.keywords:
                    if keyword.arg in {"default_factory", "factory"}:
                        self._as_called(keyword.value, inner, place.through(scope.module, call))

    def _hands_on(self, path: str, call: ast.Call, scope: Scope, place: Place) -> None:
        """Follow what is given to something that calls it."""
        if path not in CALLERS:
            keys = [one for one in call.keywords if one.arg == "key" and path in {"sorted", "min", "max"}]
        else:
            keys = [one for one in call.keywords if one.arg in CALLED_KEYWORDS]
        for number in CALLERS.get(path, ()):
            if number < len(call.args):
                self._as_called(call.args[number], scope, place)
        for keyword in keys:
            self._as_called(keyword.value, scope, place)

    def _as_called(self, node: ast.expr, scope: Scope, place: Place) -> None:
        called = ast.copy_location(ast.Call(func=node, args=[], keywords=[]), node)
        if isinstance(node, ast.Lambda):
            self.expression(node.body, scope, place)
        elif isinstance(node, ast.Name | ast.Attribute):
            # A function that is handed on runs in a thread or at once: it blocks nobody else.
            target = self.resolver.value(node, scope)
            if isinstance(target, Function):
                self.follow(target, {}, replace(place, on_loop=False).through(scope.module, node))
            elif not isinstance(target, StepFunction):
                self.call(called, scope, replace(place, on_loop=False))


_THREAD = "Make the step a plain `def` function, which runs in a thread, or use an async library in it."


def _is_away(path: str) -> bool:
    """Say whether something is of a module that is neither known nor could be found."""
    root = path.partition(".")[0]
    return "." in path and root != "onceward" and root not in sys.stdlib_module_names


def _leaves(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)


def _names_in(target: ast.expr) -> frozenset[str]:
    return frozenset(node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def _goes_through(iterated: ast.expr) -> bool:
    """Say whether a loop goes through elements that can change, not through numbers."""
    if isinstance(iterated, ast.Call):
        name = _last_name(iterated.func)
        return name not in {"range", "count"}
    return not (
        isinstance(iterated, ast.Tuple | ast.List)
        and all(isinstance(one, ast.Constant) for one in iterated.elts)
    )


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _written(call: ast.Call) -> str:
    """Give a call as people would name it."""
    text = ast.unparse(call.func)
    return f"{text}()" if len(text) <= 60 else f"…{text[-60:]}()"
