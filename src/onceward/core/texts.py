"""Texts of users that identify something: names, ids, subjects, items of loops.

They become keys of rows, parts of log lines and of addresses, so what no store can keep or no
person can read is refused where it is written, by name.
"""

from __future__ import annotations

import re

from onceward.core import errors
from onceward.core.shown import shown

NAME_CHARS_MAX = 200
ID_CHARS_MAX = 255
ITEM_CHARS_MAX = 500
SUBJECT_CHARS_MAX = 500

_NOT_STORED = re.compile("[\x00\ud800-\udfff]")


def is_name(name: object) -> bool:
    """Say whether a value can be a name of ours: printable text that is not too long."""
    return isinstance(name, str) and 0 < len(name) <= NAME_CHARS_MAX and name.isprintable()


def is_storable(text: object, chars_max: int) -> bool:
    """Say whether a value is text that every store gives back as it is."""
    if not isinstance(text, str) or len(text) > chars_max:
        return False
    return text.isprintable() or _NOT_STORED.search(text) is None  # what is printable is neither


def checked_name(name: str, what: str) -> str:
    """Give *name* if it can be a name of ours.

    Raises:
        ConfigError: it is empty, too long or not printable.
    """
    if not is_name(name):
        raise errors.ConfigError(
            f"The {what} name {shown(name)} cannot be used.",
            means=f"Names are texts of 1 to {NAME_CHARS_MAX} printable characters.",
            todo="Choose a shorter, plain name.",
        )
    return name


def name_of(function: object, name: str | None, what: str) -> str:
    """Give *name*, or the function's own, if it can be a name of ours.

    Raises:
        ConfigError: it is no function, has no name of its own, or the name cannot be used.
    """
    if not callable(function):
        raise errors.ConfigError(
            f"{shown(function)} cannot be a {what}: it is not a function.",
            means="Nothing was registered.",
            todo=f"Decorate a function: @app.{what}() and the `def` below it."
            + (" What starts it goes into on=, as in @app.workflow(on=…)." if what == "workflow" else ""),
        )
    own = getattr(function, "__name__", "<no name>")
    if name is None and own.startswith("<"):
        raise errors.ConfigError(
            f"The {what} {shown(function)} has no name of its own.",
            means=f"A {what} is found again by its name.",
            todo=f'Give it one: @app.{what}(name="…").',
        )
    return checked_name(own if name is None else name, what)


def checked_id(event_id: str) -> str:
    """Give *event_id* if it can identify an event.

    Raises:
        ConfigError: it is empty, too long, or holds NUL or half a surrogate pair.
    """
    if not is_storable(event_id, ID_CHARS_MAX) or not event_id:
        raise errors.ConfigError(
            f"The id {shown(event_id)} cannot identify an event.",
            means="Nothing was stored.",
            todo=f"Use a text of 1 to {ID_CHARS_MAX} characters without NUL.",
        )
    return event_id


def checked_subject(subject: str | None) -> str | None:
    """Give *subject* if an event can be about it.

    Raises:
        ConfigError: it is no text, too long, or holds NUL or half a surrogate pair.
    """
    if subject is not None and not is_storable(subject, SUBJECT_CHARS_MAX):
        raise errors.ConfigError(
            f"The subject {shown(subject)} cannot be kept.",
            means="Nothing was stored.",
            todo=f"Use a text of up to {SUBJECT_CHARS_MAX} characters without NUL, such as an order's id.",
        )
    return subject


def checked_step(name: str, item: str) -> None:
    """Refuse a step whose name or item cannot identify it.

    Raises:
        StepMisuse: the name is no plain text, or the item cannot be stored.
    """
    if not is_name(name):
        raise errors.StepMisuse(
            f"{shown(name)} cannot be the name of a step.",
            means=f"Names are texts of 1 to {NAME_CHARS_MAX} printable characters; they identify steps in the store.",
            todo="Choose a plain name, and put what varies into item=.",
        )
    if item and not is_storable(item, ITEM_CHARS_MAX):
        raise errors.StepMisuse(
            f"{shown(item)} cannot be the item of step {name!r} ({len(item)} characters).",
            means=f"Items are texts of up to {ITEM_CHARS_MAX} characters without NUL and half surrogate pairs.",
            todo="Use something short that tells the elements apart, e.g. item=order.id.",
        )
