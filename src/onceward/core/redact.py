"""What no output shows: the values of fields, headers and parameters that are named like a secret.

A rule is a name (``password``), which fits every field, header and parameter that ends in the same
words whatever their writing (``userPassword``, ``user-password``, ``USER_PASSWORD``), or a path
(``card.number``), which fits fields under such a field. What a rule fits is shown as `HIDDEN`, with
everything below it. Texts are searched for ``name=value`` and ``"name": "value"``, for what comes after
``Bearer`` and for passwords in addresses, those inside values too: a field may hold JSON or a form as text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from onceward.core.errors import ConfigError
from onceward.core.shown import shown

HIDDEN = "[redacted]"

DEFAULT_RULES: tuple[str, ...] = (
    "authorization",
    "cookie",
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "pwd",
    "secret",
    "secret_key",
    "signing_key",
    "token",
    "api_key",
    "apikey",
    "private_key",
    "access_key",
    "credential",
    "credentials",
    "card_number",
    "card.number",
    "cvc",
    "cvv",
    "iban",
    "account_number",
    "ssn",
)

DEPTH_MAX = 200
"""Levels of a value that are looked at; what is deeper is hidden."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W_A-Za-z0-9]+")
_RULE = re.compile(r"!?[\w.-]{1,100}")

Words = tuple[str, ...]


@functools.lru_cache(maxsize=4096)
def words_of(name: str) -> Words:
    """Give the words of a name, in lower case: ``userPassword`` and ``user-password`` are alike.

    Numbers at its end are left out: ``password2`` holds what ``password`` holds.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 1 and words[-1].isdigit():
        words.pop()
    return tuple(words)


class Redaction:
    """The rules of one app.

    Args:
        rules: beside the usual ones; ``!name`` takes a usual one away.

    Raises:
        ConfigError: a rule cannot be one.
    """

    def __init__(self, rules: Iterable[str] = ()) -> None:
        chosen = list(DEFAULT_RULES)
        for rule in rules:
            if not _RULE.fullmatch(rule) or not all(map(words_of, rule.lstrip("!").split("."))):
                raise ConfigError(
                    f"The rule {shown(rule)} of the setting 'redact' names no field.",
                    means="It is not known what no output may show.",
                    todo="Write a name such as birth_date, a path such as customer.email, or !iban to show one.",
                )
            if not rule.startswith("!"):
                chosen.append(rule)
            elif rule[1:] in chosen:
                chosen.remove(rule[1:])
            else:
                raise ConfigError(
                    f"The rule {shown(rule)} of the setting 'redact' takes away what is not there.",
                    means="The values would go on to be hidden, or never were.",
                    todo=f"The usual rules are: {', '.join(DEFAULT_RULES)}.",
                )
        paths = [tuple(words_of(part) for part in rule.split(".")) for rule in chosen]
        self._names = frozenset(path[0] for path in paths if len(path) == 1)
        self._paths = [path for path in paths if len(path) > 1]
        self._longest = max((len(name) for name in self._names), default=0)
        self._in_text = _in_text(self._names)

    def hides(self, name: str) -> bool:
        """Say whether the value of a field, header or parameter of that name is hidden."""
        words = words_of(name)
        return any(words[-count:] in self._names for count in range(1, min(self._longest, len(words)) + 1))

    def value(self, value: Any) -> Any:
        """Give a JSON value without what the rules hide; the value itself does not change."""
        return self._value(value, (), 0)

    def _value(self, value: Any, above: Sequence[str], depth: int) -> Any:
        if depth > DEPTH_MAX:
            return HIDDEN
        if isinstance(value, dict):
            return {
                key: HIDDEN
                if item is not None and self._hides_at(str(key), above)
                else self._value(item, (*above, str(key)), depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._value(item, above, depth + 1) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def _hides_at(self, name: str, above: Sequence[str]) -> bool:
        if self.hides(name):
            return True
        for path in self._paths:
            names = (*above, name)[-len(path) :]
            if len(names) == len(path) and all(
                words_of(one)[-len(part) :] == part for one, part in zip(names, path, strict=True)
            ):
                return True
        return False

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Give headers without the values that the rules hide."""
        return {name: HIDDEN if self.hides(name) else self.text(value) for name, value in headers.items()}

    def text(self, text: str) -> str:
        """Give a text that is no JSON, such as an error's message, a form or an address, likewise."""
        if "://" in text:
            text = _IN_ADDRESS.sub(rf"\g<user>{HIDDEN}", text)
        text = _BEARER.sub(rf"\g<scheme>{HIDDEN}", text)
        if "=" not in text and ":" not in text:
            return text
        return self._in_text.sub(self._hidden, text)

    def _hidden(self, match: re.Match[str]) -> str:
        start = begin = match.start()
        while begin > 0 and start - begin < _NAME_CHARS_MAX and _is_of_name(match.string[begin - 1]):
            begin -= 1
        if not self.hides(match.string[begin:start] + match["name"]):
            return match[0]
        return f"{match['name']}{match['between']}{HIDDEN}"


_NAME_CHARS_MAX = 100

_IN_ADDRESS = re.compile(r"(?P<user>(?<=://)[^\s/:@'\"]{0,100}:)[^\s/@'\"]{1,500}(?=@)")
_BEARER = re.compile(r"(?P<scheme>\bbearer\s{1,3})[\w.~+/=-]{16,}", re.IGNORECASE | re.ASCII)


def _is_of_name(char: str) -> bool:
    return char.isalnum() or char in "_-"


def _in_text(names: Iterable[Words]) -> re.Pattern[str]:
    """Give what finds ``name=value``, ``name: value`` and ``"name": "value"`` of names that may be hidden.

    By the last word of each; `Redaction._hidden` looks at what stands before it and decides. It begins with
    that word, and not with what may stand before it: each place of a long text without a match was the
    begin of a hundred tries then, and a megabyte of a stranger's held up the process for a minute.
    """
    last = "|".join(sorted({re.escape(words[-1]) for words in names}))
    return re.compile(
        rf"(?P<name>(?:{last})[_-]?[0-9]{{0,4}})"
        r"(?P<between>\\{0,8}[\"']?\s{0,3}[=:]\s{0,3}(?:(?:bearer|basic)\s{1,3})?)"
        # Texts are cut, so what closes may be missing; then all is hidden up to the end of the line.
        r"(?:[bruf]{0,2}\"(?:[^\"\\\n]|\\.)*\"?|[bruf]{0,2}'(?:[^'\\\n]|\\.)*'?"
        r"|\\{1,8}\"[^\"\n]*\"?|\\{1,8}'[^'\n]*'?"
        r"|\[[^\]\n]*\]?|\([^)\n]*\)?|\{[^}\n]*\}?|[^\s&,;'\"<>]+)",
        re.IGNORECASE,
    )
