"""Users' values in messages: short, and never a second error."""

from __future__ import annotations

from decimal import Decimal

from onceward.core.shown import listed, shown, type_name


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_a_value_is_shown_with_at_most_a_hundred_characters() -> None:
    assert shown("x" * 98) == repr("x" * 98)
    assert shown("x" * 99) == f"'{'x' * 99}…"
    assert shown(Broken()) == f"<{__name__}.Broken>"
    assert shown(10**5_000) == "<int>"


def test_a_type_has_its_module_unless_python_knows_it_anyway() -> None:
    assert (type_name(1), type_name(Decimal(1)), type_name(None)) == ("int", "decimal.Decimal", "NoneType")


def test_of_many_steps_ten_are_listed() -> None:
    names = [f"s{number}" for number in range(12)]

    assert listed(names[:1]) == "'s0'"
    assert listed(names[:10]).endswith("'s8', 's9'")
    assert listed(names[:11]).endswith("'s9' and 1 more")
    assert listed(names).endswith("'s9' and 2 more")
