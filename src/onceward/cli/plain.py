"""Text for logs and terminals: one line, and nothing in it that moves a cursor.

Strangers choose source names, header values and event ids. What they choose must neither begin a
line of its own in a log nor write to the operator's terminal.
"""

from __future__ import annotations

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def plain(text: str) -> str:
    """Give *text* with everything that is not printable escaped as Python writes it."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    if char in _NAMED:
        return _NAMED[char]
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
