"""The names of steps in one workflow: which are used twice where only the order tells them apart."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from onceward.check.places import Place
from onceward.check.project import Module
from onceward.check.scopes import Scope


@dataclass(frozen=True)
class Use:
    """One use of a step's name without ``item=``.

    Attributes:
        name: the step's.
        module: in which file.
        node: the call.
        place: on which way.
        is_decorated: it is the name of a decorated step, which may be called again in sequence.
        is_of_elements: it is for one element of a loop.
    """

    name: str
    module: Module
    node: ast.Call
    place: Place
    is_decorated: bool
    is_of_elements: bool


class Names:
    """The uses of step names on every way through one workflow."""

    def __init__(self) -> None:
        self._uses: list[Use] = []

    def used(self, call: ast.Call, scope: Scope, place: Place) -> None:
        """Note a verb of the context."""
        first = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "name"), None)
        has_item = any(keyword.arg == "item" or keyword.arg is None for keyword in call.keywords)
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and not has_item:
            self._add(first.value, call, scope, place, is_decorated=False)

    def called(self, name: str, call: ast.Call, scope: Scope, place: Place) -> None:
        """Note a call of a decorated step, without its item."""
        self._add(name, call, scope, place, is_decorated=True)

    def _add(self, name: str, call: ast.Call, scope: Scope, place: Place, *, is_decorated: bool) -> None:
        arguments = [*call.args[1:], *call.keywords] if not is_decorated else [*call.args, *call.keywords]
        named = {node.id for one in arguments for node in ast.walk(one) if isinstance(node, ast.Name)}
        of_elements = bool(named & place.elements)
        self._uses.append(Use(name, scope.module, call, place, is_decorated, of_elements))

    def clashes(self) -> list[tuple[Use, str]]:
        """Give the uses that should have another name or an item, each with what is wrong."""
        found: dict[ast.Call, tuple[Use, str]] = {}
        by_name: dict[str, list[Use]] = {}
        for use in self._uses:
            what = self._alone(use) or self._after(use, by_name.get(use.name, []))
            if what is not None:
                found.setdefault(use.node, (use, what))
            by_name.setdefault(use.name, []).append(use)
        return list(found.values())

    def _alone(self, use: Use) -> str | None:
        if any(which is None for _, which in use.place.aside):
            return f"The step {use.name!r} has no item= and runs side by side for several elements"
        if use.is_of_elements and not use.is_decorated:
            return f"The step {use.name!r} has no item= and runs for each element of a loop"
        return None

    def _after(self, use: Use, earlier: list[Use]) -> str | None:
        for one in earlier:
            if use.place.excludes(one.place):
                continue
            if use.place.is_beside(one.place):
                return f"The step {use.name!r} runs in two branches side by side"
            if one.node is not use.node and not (use.is_decorated and one.is_decorated):
                return f"The step name {use.name!r} is used on line {one.node.lineno} already"
        return None
