"""The files of an app as syntax trees: found from each other's imports, never imported.

Only files beside the checked ones are read: a module of a library is known by its name alone.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from dataclasses import dataclass, field
from pathlib import Path

_ALLOW = re.compile(r"#\s*onceward:\s*allow\[([^\]]*)\]")

FILE_BYTES_MAX = 4_000_000
"""Larger ones are data that somebody wrote as code."""

_NOT_OURS = {"__pycache__", "node_modules", "site-packages", "venv", "env"}


class CannotRead(Exception):
    """A file that is no Python source; the message says why."""


@dataclass(eq=False)
class Module:
    """A file that was read.

    Attributes:
        path: where it is.
        shown: how it is named in findings.
        tree: its syntax tree.
        allowed: the rules that comments excuse, by line.
        bare: the lines that hold nothing but such a comment.
    """

    path: Path
    shown: str
    tree: ast.Module
    allowed: dict[int, set[str]] = field(default_factory=dict)
    bare: set[int] = field(default_factory=set)

    def allows(self, rule: str, first: int, last: int) -> bool:
        """Say whether a comment on these lines, or alone above them, excuses a rule."""
        lines = range(first, last + 1)
        above = first - 1
        while above in self.bare:
            if rule in self.allowed[above]:
                return True
            above -= 1
        return any(rule in self.allowed.get(line, ()) for line in lines)

    def mentions_us(self) -> bool:
        """Say whether the file imports anything of ours."""
        return any(
            (isinstance(node, ast.Import) and any(_is_ours(alias.name) for alias in node.names))
            or (isinstance(node, ast.ImportFrom) and not node.level and _is_ours(node.module or ""))
            for node in ast.walk(self.tree)
        )


def _is_ours(dotted: str) -> bool:
    return dotted.partition(".")[0] == "onceward"


def parse(path: Path, shown: str) -> Module:
    """Read one file.

    Raises:
        CannotRead: it is not there, not text, or no Python.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise CannotRead(error.strerror or str(error)) from error
    if len(raw) > FILE_BYTES_MAX:
        raise CannotRead(f"it has more than {FILE_BYTES_MAX} bytes")
    try:
        tree = ast.parse(raw, filename=str(path))
        module = Module(path, shown, tree)
        _read_comments(module, raw)
    except SyntaxError as error:
        raise CannotRead(f"line {error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError, tokenize.TokenError) as error:
        raise CannotRead(str(error) or type(error).__name__) from error
    return module


def _read_comments(module: Module, raw: bytes) -> None:
    if b"onceward:" not in raw:
        return
    for token in tokenize.tokenize(io.BytesIO(raw).readline):
        if token.type == tokenize.COMMENT and (match := _ALLOW.search(token.string)):
            line = token.start[0]
            module.allowed.setdefault(line, set()).update(
                rule.strip() for rule in match[1].split(",") if rule.strip()
            )
            if token.line.lstrip().startswith("#"):
                module.bare.add(line)


def python_files(path: Path) -> list[Path]:
    """Give the sources in a folder, those of virtual environments and hidden folders left out."""
    found = []
    for file in sorted(path.rglob("*.py")):
        folders = file.relative_to(path).parts[:-1]
        if any(part in _NOT_OURS or part.startswith(".") for part in folders):
            continue
        found.append(file)
    return found


class Project:
    """Modules by path, read when they are asked for."""

    def __init__(self) -> None:
        self._modules: dict[Path, Module | None] = {}

    def open(self, path: Path, shown: str) -> Module:
        """Read a file that is to be checked.

        Raises:
            CannotRead: it is no Python source.
        """
        key = path.resolve()
        known = self._modules.get(key)
        if known is None:
            known = self._modules[key] = parse(path, shown)
        return known

    def imported(self, dotted: str, level: int, origin: Module) -> Module | None:
        """Give the module that an import in *origin* means, if it is a file beside it."""
        first = dotted.partition(".")[0]
        if not level and (_is_ours(dotted) or first in sys.stdlib_module_names):
            return None
        parts = [part for part in dotted.split(".") if part]
        if level:
            folder = origin.path.resolve().parent
            for _ in range(level - 1):
                folder = folder.parent
            return self._at(folder.joinpath(*parts), origin) if parts else self._at(folder, origin)
        for root in _roots(origin.path.resolve()):
            if "site-packages" not in root.parts and (found := self._at(root.joinpath(*parts), origin)):
                return found
        return None

    def _at(self, place: Path, origin: Module) -> Module | None:
        for path in (place.with_name(place.name + ".py"), place / "__init__.py"):
            key = path.resolve()
            if key in self._modules:
                return self._modules[key]
            if path.is_file():
                try:
                    module = parse(path, _beside(path, origin))
                except CannotRead:  # told if it was asked for itself
                    module = None
                self._modules[key] = module
                return module
        return None


def _roots(path: Path) -> list[Path]:
    """Give the folders that absolute imports of a file may start from."""
    folder = path.parent
    roots = [folder]
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        folder = folder.parent
        roots.append(folder)
    roots += [folder.parent, Path.cwd(), Path.cwd() / "src"]
    return list(dict.fromkeys(roots))


def _beside(path: Path, origin: Module) -> str:
    """Give the name of a file as the one that imports it is named: relative where that is."""
    if not Path(origin.shown).is_absolute():
        try:
            return str(path.resolve().relative_to(Path.cwd()))
        except ValueError:
            pass
    return str(path)
