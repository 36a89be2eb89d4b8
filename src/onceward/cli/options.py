"""Options made from the table of settings, so that no setting is described twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from onceward.core.setting import Setting
from onceward.core.settings import SETTINGS

F = TypeVar("F", bound=Callable[..., Any])

_BY_NAME = {setting.name: setting for setting in SETTINGS}


def setting_options(*names: str) -> Callable[[F], F]:
    """Give a decorator that adds an option for each named setting; not given means None.

    The values arrive as the text that was typed: the table reads and checks them, as it does for
    arguments and variables.
    """

    def decorate(function: F) -> F:
        for name in reversed(names):
            function = _option(_BY_NAME[name])(function)
        return function

    return decorate


def _option(setting: Setting) -> Callable[[F], F]:
    default = "" if setting.default is None else f"; default: {setting.show(setting.default)}"
    metavar = "|".join(setting.choices) if setting.choices else setting.kind.value.upper()
    return click.option(
        f"--{setting.name.replace('_', '-')}",
        setting.name,
        metavar=metavar,
        help=f"{setting.help.replace('`', '')}  [{setting.env}{default}]",
    )


class WholeNumber(click.IntRange):
    """A number between bounds; what is none is refused as no integer, and not as no "integer range"."""

    name = "integer"
