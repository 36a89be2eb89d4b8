"""What a disk may hold after the power went: everything that was synced, and of the rest whatever a seed says.

What a program wrote and did not sync is in the kernel's memory, and goes to the disk when the kernel likes,
sector by sector. So each sector of a file holds what it held at some moment since the last sync of the file,
each sector at a moment of its own; the file's size is that of some moment, and so is each name of a folder
since the folder's last sync. A file that was synced and whose name was not is on the disk and not to be found.
A write changes no byte beside its own (SQLite's "powersafe overwrite"), but stops at any bound of sectors.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.campaign.power.trace import Change

SECTORS = (512, 4096)
ALL = 1 << 60

STYLES = ("nothing", "everything", "in order", "any", "any", "any", "all but one", "one")
"""How much of what was not synced arrived, one of them for each image."""


@dataclass(slots=True)
class _File:
    """A file that a program made: what was done to its bytes, and when that was made to last."""

    changes: list[Change] = field(default_factory=list)
    syncs: list[Change] = field(default_factory=list)
    # Up to where the bytes below are those of changes that last.
    taken: int = 0
    synced: int = 0
    bound: int = -1
    lasting: bytearray = field(default_factory=bytearray)
    end: int = 0
    """Where the file ends when everything arrived, for writes at its end."""


@dataclass(slots=True)
class _Folder:
    """The names in a folder: what each stood for, and since when."""

    syncs: list[Change] = field(default_factory=list)
    names: dict[str, list[tuple[int, int, _File | _Folder | None]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Image:
    """A disk after a power loss.

    Attributes:
        at: the moment at which the power went.
        style: how much of what was not synced arrived.
        files: bytes by path; a folder's path ends in a slash.
        lost: whether anything that was under way did not arrive.
    """

    at: int
    style: str
    sector: int
    files: Mapping[str, bytes]
    lost: bool

    def put(self, folder: Path) -> None:
        """Make the files, in a folder that is there and empty."""
        for name in sorted(self.files):
            path = folder / name
            if name.endswith("/"):
                path.mkdir()
            else:
                path.write_bytes(self.files[name])


class Disk:
    """Gives images of what a recording did to an empty folder.

    Args:
        changes: of the recording, in the order in which they ended.
        forget: when the syncs began that never happened, for a planted fault.
        skip: a name whose files are not of interest, such as ``-shm``, which is memory.
    """

    def __init__(
        self,
        changes: Iterable[Change],
        *,
        forget: frozenset[int] = frozenset(),
        skip: str = "-shm",
    ) -> None:
        self._root = _Folder()
        self._at = -1
        kept = [change for change in changes if not change.path.endswith(skip)]
        gone: dict[str, _File] = {}
        for change in kept:
            if not (change.what == "sync" and change.began in forget):
                self._take(change, gone)

    # --- what was done ---------------------------------------------------------------------------

    def _take(self, change: Change, gone: dict[str, _File]) -> None:
        path, what = change.path, change.what
        there = self._find(path)
        if what == "sync":
            if isinstance(there, (_Folder, _File)):
                there.syncs.append(change)
        elif what in ("write", "truncate"):
            file = there if isinstance(there, _File) else gone.get(path)
            assert file is not None, f"{what} of {path}, which was never made"
            self._grow(file, change)
        elif what == "create":
            if there is None:
                self._bind(path, change, _File())
        elif what == "make":
            self._bind(path, change, _Folder())
        elif what == "remove":
            if isinstance(there, _File):
                gone[path] = there
            self._bind(path, change, None)
        else:
            assert what == "rename", what
            self._bind(path, change, None)
            self._bind(change.to, change, there)

    def _grow(self, file: _File, change: Change) -> None:
        if change.what == "write":
            offset = file.end if change.offset < 0 else change.offset
            file.end = max(file.end, offset + len(change.data))
            if offset != change.offset:
                change = Change(change.began, change.ended, "write", change.path, offset, change.data)
        else:
            file.end = change.offset
        file.changes.append(change)

    def _find(self, path: str) -> _File | _Folder | None:
        found: _File | _Folder | None = self._root
        for part in path.split("/") if path else ():
            if not isinstance(found, _Folder):
                return None
            bound = found.names.get(part)
            found = bound[-1][2] if bound else None
        return found

    def _bind(self, path: str, change: Change, to: _File | _Folder | None) -> None:
        above, _, name = path.rpartition("/")
        folder = self._find(above)
        assert isinstance(folder, _Folder), f"{path} in no folder"
        folder.names.setdefault(name, []).append((change.began, change.ended, to))

    # --- what may be there ------------------------------------------------------------------------

    def all_of_it(self) -> dict[str, bytes]:
        """Give what the folder holds when nothing is lost."""
        return dict(self.image(ALL, random.Random(0), style="everything").files)

    def image(self, at: int, draws: random.Random, *, style: str | None = None) -> Image:
        """Give what may be on the disk when the power went at that moment; moments must not go back."""
        assert at >= self._at, "images are asked for in the order of their moments"
        self._at = at
        style = style or draws.choice(STYLES)
        chosen = _Chosen(style, draws.choice(SECTORS), draws)
        files: dict[str, bytes] = {}
        self._list(self._root, "", at, chosen, files)
        return Image(at, style, chosen.sector, files, chosen.lost)

    def _list(self, folder: _Folder, above: str, at: int, chosen: _Chosen, files: dict[str, bytes]) -> None:
        bound = _bound(folder.syncs, at)
        for name, history in folder.names.items():
            begun = [entry for entry in history if entry[0] < at]
            lasting = sum(1 for entry in begun if entry[1] < bound)
            there = chosen.name(len(begun) - lasting)
            number = lasting + there
            found = begun[number - 1][2] if number else None
            if isinstance(found, _Folder):
                files[f"{above}{name}/"] = b""
                self._list(found, f"{above}{name}/", at, chosen, files)
            elif found is not None:
                files[f"{above}{name}"] = self._bytes(found, at, chosen)

    def _bytes(self, file: _File, at: int, chosen: _Chosen) -> bytes:
        while file.synced < len(file.syncs) and file.syncs[file.synced].ended < at:
            file.bound = max(file.bound, file.syncs[file.synced].began)
            file.synced += 1
        while file.taken < len(file.changes) and file.changes[file.taken].ended < file.bound:
            _apply(file.lasting, file.changes[file.taken])
            file.taken += 1
        pending = [change for change in file.changes[file.taken :] if change.began < at]
        return chosen.content(file.lasting, pending) if pending else bytes(file.lasting)


def lasting(files: Mapping[str, bytes]) -> list[Change]:
    """Give what made the files of an image that a recording began with; all of it lasts, and before moment 0."""
    changes = []
    for name in sorted(files):
        path = name.removesuffix("/")
        changes.append(Change(-30, -30, "make" if name.endswith("/") else "create", path))
        if path == name:
            changes += [Change(-30, -30, "write", path, 0, files[name]), Change(-20, -20, "sync", path)]
    folders = {"", *(name.removesuffix("/") for name in files if name.endswith("/"))}
    return changes + [Change(-10, -10, "sync", folder) for folder in sorted(folders)]


def _bound(syncs: Sequence[Change], at: int) -> int:
    return max((sync.began for sync in syncs if sync.ended < at), default=-1)


def _apply(content: bytearray, change: Change) -> None:
    if change.what == "truncate":
        _resize(content, change.offset)
    else:
        end = change.offset + len(change.data)
        if len(content) < end:
            _resize(content, end)
        content[change.offset : end] = change.data


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


class _Chosen:
    """How far each sector, size and name had come, as one image has it."""

    def __init__(self, style: str, sector: int, draws: random.Random) -> None:
        self.style = style
        self.sector = sector
        self.lost = False
        self._draws = draws
        self._share = draws.choice((0.1, 0.5, 0.9))
        self._is_stale = draws.random() < 0.2

    def name(self, pending: int) -> int:
        """Give how many of a name's last changes arrived."""
        arrived = self._far(pending)
        self.lost |= arrived < pending
        return arrived

    def _far(self, pending: int) -> int:
        if self.style == "nothing" or not pending:
            return 0
        if self.style == "everything":
            return pending
        if self._draws.random() < self._share:
            return pending
        return self._draws.randint(0, pending)

    def content(self, lasting: bytearray, pending: Sequence[Change]) -> bytes:
        """Give a file's bytes: those that last, and of each sector what it held at some moment since."""
        content = bytearray(lasting)
        if self.style == "everything":
            for change in pending:
                _apply(content, change)
            return bytes(content)
        self.lost = True
        if self.style == "nothing":
            return bytes(content)
        sizes = [len(lasting)]
        for change in pending:
            size = change.offset + len(change.data)
            sizes.append(change.offset if change.what == "truncate" else max(sizes[-1], size))
        far = self._limits(pending, sizes)
        content.extend(self._between(max(sizes) - len(content)))
        for number, change in enumerate(pending):
            start, end = change.offset, change.offset + len(change.data)
            if change.what == "truncate":
                end = sizes[number]
            for sector in range(start // self.sector, -(-end // self.sector)):
                if number >= far(sector):
                    continue
                low, high = max(start, sector * self.sector), min(end, (sector + 1) * self.sector)
                if change.what == "truncate":
                    content[low:high] = bytes(high - low)
                else:
                    content[low:high] = change.data[low - start : high - start]
        _resize(content, sizes[self._size(len(pending))])
        return bytes(content)

    def _between(self, length: int) -> bytes:
        """Give what is where a file was made longer and nothing arrived: zeros, or what was there before it."""
        return self._draws.randbytes(length) if self._is_stale else bytes(length)

    def _size(self, pending: int) -> int:
        return pending if self.style in ("all but one", "one") else self._far(pending)

    def _limits(self, pending: Sequence[Change], sizes: Sequence[int]) -> Callable[[int], int]:
        """Give, of each sector, how many of the changes had been made when it went to the disk."""
        draws, count = self._draws, len(pending)
        if self.style in ("all but one", "one"):
            change = draws.choice(pending)
            length = max(len(change.data), 1)
            special = (change.offset + draws.randrange(length)) // self.sector
            usual = ALL if self.style == "all but one" else 0
            return lambda sector: ALL - usual if sector == special else usual
        if self.style == "in order":
            torn = draws.randrange(count)
            return _once(lambda: torn + draws.randrange(2))
        return _once(lambda: ALL if draws.random() < self._share else draws.randint(0, count))


def _once(draw: Callable[[], int]) -> Callable[[int], int]:
    drawn: dict[int, int] = {}

    def far(sector: int) -> int:
        if sector not in drawn:
            drawn[sector] = draw()
        return drawn[sector]

    return far
