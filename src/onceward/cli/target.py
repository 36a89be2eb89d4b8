"""Finds the application that ``MODULE:APP`` names, and says why it cannot be had.

The current directory is searched first, as uvicorn does it. What the module itself raises is told
with the place in the user's file, since our own frames would only be in the way.
"""

from __future__ import annotations

import difflib
import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

from onceward.app import App
from onceward.core.errors import ConfigError, OncewardError
from onceward.core.shown import type_name

FORM = "Write MODULE:APP, for example shop:app for the name app in shop.py."


def load(target: str) -> App:
    """Give the app that *target* names.

    Raises:
        ConfigError: the text is of another form, the module cannot be imported, or the name is
            no app of ours.
        OncewardError: what the module itself raised, if it is ours.
    """
    module_name, colon, attribute = target.partition(":")
    if not module_name or not attribute:
        raise ConfigError(
            f"{target!r} names no application.",
            means="It has no name after the colon." if colon else "There is no colon in it.",
            todo=f"Did you mean {_module_of(module_name)}:app? {FORM}" if module_name else FORM,
        )
    if module_name != _module_of(module_name):
        raise ConfigError(
            f"{module_name!r} is a file, not a module.",
            means="Modules are named without .py, with dots for folders.",
            todo=f"Did you mean {_module_of(module_name)}:{attribute}?",
        )
    module = _imported(module_name)
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise _no_such_name(module, module_name, attribute)
        found = getattr(found, part)
    if not isinstance(found, App):
        raise _no_app(found, module, target)
    return found


def _module_of(path: str) -> str:
    return path.removesuffix(".py").strip("./\\").replace("/", ".").replace("\\", ".") or path


def _imported(name: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except OncewardError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise _no_such_module(name) from None
        raise ConfigError(
            f"{name} imports {error.name!r}, which is not there ({_place(error)}).",
            means="The application cannot be imported.",
            todo=f"Install it beside Onceward: {sys.executable} -m pip install {error.name}",
        ) from error
    except SyntaxError as error:
        raise ConfigError(
            f"{error.filename}, line {error.lineno}: {error.msg}.",
            means="The application cannot be imported.",
            todo="Correct the file.",
        ) from error
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{name} raised {_said(error)} while it was imported ({_place(error)}).",
            means="The application cannot be had.",
            todo="Correct the file; it must do no work when it is imported.",
        ) from error


def _no_such_module(name: str) -> ConfigError:
    here = Path.cwd()
    known = sorted(path.stem for path in here.glob("*.py"))
    close = difflib.get_close_matches(name, known, n=1)
    return ConfigError(
        f"There is no module {name!r} in {here} or where Python looks.",
        means="The application cannot be imported.",
        todo=f"Did you mean {close[0]}:app?" if close else "Change to its directory, or set PYTHONPATH.",
    )


def _no_such_name(module: ModuleType, module_name: str, attribute: str) -> ConfigError:
    apps = _apps_in(module)
    return ConfigError(
        f"The module {module_name!r} ({getattr(module, '__file__', 'built in')}) has no {attribute!r}.",
        means="The application cannot be found.",
        todo=f"Did you mean {module_name}:{apps[0]}?"
        if apps
        else 'Write app = App("sqlite:///orders.db") in it.',
    )


def _no_app(found: object, module: ModuleType, target: str) -> ConfigError:
    apps = _apps_in(module)
    if apps:
        todo = f"Did you mean {target.partition(':')[0]}:{apps[0]}?"
    else:
        todo = "Name an App. A web application has a server of its own: mount app.asgi() in it."
    return ConfigError(
        f"{target!r} is no onceward.App but of type {type_name(found)}.",
        means="There is nothing to receive events with.",
        todo=todo,
    )


def _apps_in(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, App)]


def _said(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _place(error: BaseException) -> str:
    """Give the last place in the traceback that is neither ours nor the import machinery's."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen") and frame.filename not in (__file__, importlib.__file__)
    ]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else "no line"
