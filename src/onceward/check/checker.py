"""Checks files: finds the workflows and steps in them and goes through the code of each."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from onceward.check.findings import Findings, Report, Unreadable
from onceward.check.places import Place
from onceward.check.project import CannotRead, Module, Project, python_files
from onceward.check.resolve import Resolver, unquoted
from onceward.check.results import Storable
from onceward.check.scopes import Scope, own_nodes
from onceward.check.values import Function, Named, StepFunction, TheContext, Value, WorkflowFunction
from onceward.check.walk import Walk

_ASYNC_CONTEXTS = {"onceward.Context", "onceward.authoring.context.Context"}


def check(paths: Sequence[str | Path]) -> Report:
    """Check the source of apps without importing it.

    Args:
        paths: files and folders; folders are searched for ``*.py``.

    Returns:
        The findings, and what could not be read.
    """
    checker = _Checker()
    for path in paths:
        checker.add(Path(path))
    return checker.report()


@dataclass
class _Checker:
    project: Project = field(default_factory=Project)
    findings: Findings = field(default_factory=Findings)
    unreadable: list[Unreadable] = field(default_factory=list)
    modules: list[Module] = field(default_factory=list)

    def add(self, path: Path) -> None:
        """Read a file or the files of a folder."""
        for file in python_files(path) if path.is_dir() else [path]:
            try:
                module = self.project.open(file, str(file))
            except CannotRead as error:
                self.unreadable.append(Unreadable(str(file), str(error)))
            else:
                module.shown = str(file)
                if module not in self.modules:
                    self.modules.append(module)

    def report(self) -> Report:
        """Go through all that was read."""
        resolver = Resolver(self.project)
        workflows: dict[ast.AST, Function] = {}
        bodies: dict[ast.AST, Function] = {}
        for module in self.modules:
            for function in _functions(resolver, module, "workflow"):
                workflows.setdefault(function.node, function)
            for function in _functions(resolver, module, "step"):
                bodies.setdefault(function.node, function)
        for function in workflows.values():
            with self._told(function):
                self._check_workflow(resolver, function, bodies)
        for function in bodies.values():
            with self._told(function):
                self._check_step(resolver, function)
        return Report(
            tuple(self.findings), tuple(self.unreadable), len(self.modules), len(workflows), len(bodies)
        )

    @contextmanager
    def _told(self, function: Function) -> Iterator[None]:
        """Tell of code that is nested too deeply to be gone through, and go on with the rest."""
        try:
            yield
        except RecursionError:
            reason = f"line {function.node.lineno}: {function.name} is nested too deeply"
            self.unreadable.append(Unreadable(function.module.shown, reason))

    def _check_workflow(
        self, resolver: Resolver, function: Function, bodies: dict[ast.AST, Function]
    ) -> None:
        walk = Walk(resolver, self.findings, bodies)
        walk.is_async = function.is_async
        place = Place(f"workflow {function.name!r}")
        parameters = function.node.args
        names = [one.arg for one in (*parameters.posonlyargs, *parameters.args)]
        given: dict[str, Value] = {names[0]: TheContext()} if names else {}
        first = [*parameters.posonlyargs, *parameters.args][:1]
        annotation = first[0].annotation if first else None
        if not function.is_async and annotation is not None:
            found = resolver.value(unquoted(annotation), function.scope)
            if isinstance(found, Named) and found.path in _ASYNC_CONTEXTS:
                what = f"{ast.unparse(annotation)} is the context of"
                walk.report(function.module, annotation, "wrong-context", f"{what} the plain function", place)
        walk.follow(function, given, place)
        for use, what in walk.names.clashes():
            walk.report(use.module, use.node, "repeated-step-name", what, use.place)
        self._check_types(walk, resolver, function, place, is_workflow=True)

    def _check_step(self, resolver: Resolver, function: Function) -> None:
        walk = Walk(resolver, self.findings, {})
        place = Place(f"step {function.name!r}" if function.name != "a lambda" else "a step", is_step=True)
        walk.follow(function, {}, place)
        self._check_types(walk, resolver, function, place, is_workflow=False)

    def _check_types(
        self, walk: Walk, resolver: Resolver, function: Function, place: Place, *, is_workflow: bool
    ) -> None:
        storable, node = Storable(resolver), function.node
        if not isinstance(node, ast.Lambda):
            said = [node.returns] if node.returns is not None else []
            if is_workflow:
                every = [*node.args.posonlyargs, *node.args.args][1:] + node.args.kwonlyargs
                said += [one.annotation for one in every if one.annotation is not None]
            for annotation in said:
                reason = storable.objection(annotation, function.scope)
                if reason is not None:
                    what = f"{ast.unparse(annotation)} cannot be stored ({reason})"
                    walk.report(function.module, annotation, "unstorable-annotation", what, place)
        refused = storable.refused_result(function)
        if refused is not None:
            value, what = refused
            walk.report(
                function.module,
                value,
                "unstorable-result",
                f"{what} is returned without an annotation",
                place,
            )


def _functions(resolver: Resolver, module: Module, role: str) -> Iterator[Function]:
    """Give the workflows, or the decorated steps, that a file has."""
    for scope in _scopes(resolver, module):
        for node in own_nodes(scope.node):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found = resolver.decorated(node, scope)
                if isinstance(found, WorkflowFunction if role == "workflow" else StepFunction):
                    yield found.function
            elif isinstance(node, ast.Call) and len(node.args) == 1:
                named = resolver.role(node.func, None, scope)
                is_it = named == "workflow" if role == "workflow" else named in {"step", "transaction"}
                function = resolver.value(node.args[0], scope) if is_it else None
                if isinstance(function, Function):
                    yield function


def _scopes(resolver: Resolver, module: Module) -> Iterator[Scope]:
    """Give the scopes of a file: its own, and those of functions and classes in it."""
    waiting = [resolver.top(module)]
    while waiting:
        scope = waiting.pop()
        yield scope
        waiting += [
            Scope(module, node, scope)
            for node in own_nodes(scope.node)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        ]
