"""The page of the API: every public name is on it, and every docstring says what it takes."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator

import pytest

import onceward
import onceward.sources
import onceward.testing
from scripts import generate_docs
from scripts.generate_docs import API, DATA

CONSTRUCTED = {
    "App",
    "AsgiVerbs",
    "BlockingVerbs",
    "Retry",
    "Retention",
    "NoticeAddress",
    "Source",
    "Stripe",
    "GitHub",
    "Hmac",
    "Generic",
    "CloudEvents",
    "PostgresServer",
    "PgBouncer",
    "TcpProxy",
}
"""Classes that users make; of the others the constructor is nobody's business."""


def documented() -> Iterator[tuple[str, object]]:
    """Give every function, class, method and property that the page shows, by its name."""
    for part in API:
        module = importlib.import_module(part.module)
        for name in part.names:
            if name in DATA:
                continue
            value = getattr(module, name)
            yield name, value
            if inspect.isclass(value):
                for member in generate_docs.public_members(value):
                    yield f"{name}.{member}", getattr(value, member)


def public_parameters(value: object) -> list[str]:
    """Give the names of what a caller passes."""
    names = inspect.signature(value).parameters  # type: ignore[arg-type]
    return [name for name in names if name not in {"self", "cls"} and not name.startswith("_")]


DOCUMENTED = dict(documented())


@pytest.mark.parametrize("package", [onceward, onceward.sources, onceward.testing])
def test_every_public_name_of_a_package_is_on_the_page(package: object) -> None:
    listed = {name for part in API if part.module == getattr(package, "__name__", "") for name in part.names}

    assert listed == set(getattr(package, "__all__", ()))


def test_the_page_has_a_directive_for_every_name() -> None:
    page = generate_docs.api_page()

    for part in API:
        for name in part.names:
            assert re.search(
                rf"^\.\. (?:auto\w+|py:data):: {re.escape(f'{part.module}.{name}')}$", page, re.MULTILINE
            )


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_documented_thing_has_a_docstring_of_its_own(name: str) -> None:
    value = DOCUMENTED[name]
    found = value.__doc__ or ""

    assert found.strip()
    assert found != (object.__init__.__doc__ or "")


TAKING = {
    name: parameters
    for name, value in DOCUMENTED.items()
    if inspect.isroutine(value) or name in CONSTRUCTED
    if len(parameters := public_parameters(value)) > 1
}
"""What takes more than one thing: the first line of a docstring can tell of one."""


@pytest.mark.parametrize("name", TAKING)
def test_a_docstring_says_what_each_parameter_is_or_where_to_look(name: str) -> None:
    text = inspect.getdoc(DOCUMENTED[name]) or ""

    missing = [one for one in TAKING[name] if not re.search(rf"^\s+{one}: \S", text, re.MULTILINE)]
    assert missing == [] or re.search(r"[;:] see `\w+(\.\w+)?`", text)
