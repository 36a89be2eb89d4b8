"""An exception as bounded text: what is saved of a failed try.

An exception cannot be rebuilt in another process (its ``__init__`` wants other arguments, it holds
a socket), so its type, message and traceback are kept as text. It is foreign code in the worst
state: looking at it must neither raise nor take long, or one failing step would take its worker
along.
"""

from __future__ import annotations

import linecache
import re
import textwrap
import traceback
from collections import deque
from collections.abc import Iterator
from itertools import islice

from onceward.core.shown import class_name

_TYPE_CHARS_MAX = 300
_LINE_CHARS_MAX = 1_000
_LINES_MAX = 1_000
_FRAMES_MAX = 50
_CAUSES_MAX = 20
_NOTES_MAX = 20
_GROUP_WIDTH_MAX = 10
_GROUP_DEPTH_MAX = 5
_SURROGATE = re.compile("[\ud800-\udfff]")


def describe_error(error: BaseException, *, limit_chars: int = 8_000) -> dict[str, str]:
    """Give ``{"type", "message", "traceback"}`` of an exception; never raises.

    Each is text of at most *limit_chars* characters: the middle of a longer one is cut out and its
    length noted, since the first lines say where it began and the last what happened. Halves of
    surrogate pairs become U+FFFD; NUL stays.
    """
    return {
        **name_error(error, limit_chars=limit_chars),
        "traceback": _cut(_traceback(error), limit_chars),
    }


def name_error(error: BaseException, *, limit_chars: int) -> dict[str, str]:
    """Give the same without the traceback, which takes a hundred times as long."""
    return {
        "type": _cut(_type(error), min(limit_chars, _TYPE_CHARS_MAX)),
        "message": _cut(_message(error), limit_chars),
    }


def _type(error: BaseException) -> str:
    try:
        return class_name(type(error))
    except Exception:  # noqa: BLE001 (a metaclass may have its own ideas of __module__)
        return "(a type without a name)"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as second:  # noqa: BLE001 (SystemExit out of __str__ would end the worker)
        return f"(its message cannot be shown: {_type(second)} was raised)"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(islice(_lines(error, 0), _LINES_MAX))
    except BaseException as second:  # noqa: BLE001 (as above: notes and source lines are foreign too)
        return f"(its traceback cannot be shown: {_type(second)} was raised)"


def _lines(error: BaseException, depth: int) -> Iterator[str]:
    """Give the lines that Python prints, oldest cause first.

    Not by ``traceback.TracebackException``: it looks at every cause and every frame before it
    formats the first, and a chain of causes has no bound.
    """
    chain: list[tuple[BaseException, str]] = [(error, "")]
    seen = {id(error)}
    while len(chain) <= _CAUSES_MAX:
        latest = chain[-1][0]
        if latest.__cause__ is not None:
            earlier, words = latest.__cause__, "The above exception was the direct cause of the following:"
        elif latest.__context__ is not None and not latest.__suppress_context__:
            earlier, words = latest.__context__, "During handling of the above exception, another occurred:"
        else:
            break
        if id(earlier) in seen:
            break
        seen.add(id(earlier))
        chain[-1] = (latest, words)
        chain.append((earlier, ""))
    for link, words in reversed(chain):
        if words:
            yield f"\n{words}\n\n"
        yield from _own_lines(link, depth)


def _own_lines(error: BaseException, depth: int) -> Iterator[str]:
    if error.__traceback__ is not None:
        yield "Traceback (most recent call last):\n"
        # Not by `traceback.format_tb`: it parses every source line again to mark a part of it, which
        # takes most of the time of a failed try.
        for frame, line_number in deque(traceback.walk_tb(error.__traceback__), _FRAMES_MAX):
            code = frame.f_code
            yield f'  File "{code.co_filename}", line {line_number}, in {code.co_name}\n'
            line = linecache.getline(code.co_filename, line_number, frame.f_globals).strip()
            if line:
                yield f"    {line}\n"
    yield f"{_type(error)}: {_cut(_message(error), _LINE_CHARS_MAX)}\n"
    notes = getattr(error, "__notes__", None)
    for note in notes[:_NOTES_MAX] if isinstance(notes, list) else ():
        yield f"{_cut(str(note), _LINE_CHARS_MAX)}\n"
    if not isinstance(error, BaseExceptionGroup):
        return
    if depth >= _GROUP_DEPTH_MAX:
        yield "  (deeper groups are not shown)\n"
        return
    for count, inner in enumerate(error.exceptions[:_GROUP_WIDTH_MAX], 1):
        yield f"  --- {count} of {len(error.exceptions)} ---\n"
        for text in _lines(inner, depth + 1):
            yield textwrap.indent(text, "  ")


def _cut(text: str, limit_chars: int) -> str:
    if len(text) > limit_chars:
        kept = max(limit_chars - len(_mark(len(text))), 0)
        mark = _mark(len(text) - kept)
        head = kept // 4
        text = f"{text[:head]}{mark}{text[len(text) - (kept - head) :]}"[:limit_chars]
    return _SURROGATE.sub("\ufffd", text)


def _mark(count: int) -> str:
    return f"\n… {count:,} characters are not shown …\n"
