"""What a process asked of the system about a folder, in order: a recording by ``strace``, read back.

Every write, truncation, sync, creation, removal and renaming below the folder is there with its bytes, and
every byte that went to a socket or to the ledger, on one axis of time: the lines of the recording. A call has
a line at which it began and one at which it had ended. A tracee stands still while strace notes either, so
what caused what is in that order, whatever the threads and processes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

NEVER = 1 << 62
"""When a call ended that was cut off."""

TRACED = (
    "openat,open,creat,write,pwrite64,writev,pwritev,pwritev2,sendto,sendmsg,fsync,fdatasync,sync_file_range,"
    "ftruncate,truncate,fallocate,unlink,unlinkat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,"
    "mkdir,mkdirat,rmdir,mmap,sendfile,copy_file_range,splice,sync,syncfs"
)
BYTES_MAX = 4 << 20

_HEX = r'"((?:\\x[0-9a-f]{2})*)"'
_LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>(.*)|(\w+)\((.*))", re.DOTALL)
_RESULT = re.compile(r"\) += (-?\d+|0x[0-9a-f]+)[^=]*$")
_FD = re.compile(r"(?:AT_FDCWD|-?\d+)<((?:\\x[0-9a-f]{2}|[^>\\])*)>(\(deleted\))?")
_UNFINISHED = " <unfinished ...>"


class CannotRecord(Exception):
    """The machine has no strace, or does not let it trace."""


@dataclass(frozen=True, slots=True)
class Change:
    """One call that changes a file or a folder, or makes earlier changes last.

    Attributes:
        what: ``write``, ``truncate``, ``sync``, ``create``, ``make`` (a folder), ``remove`` or ``rename``.
        path: below the folder; of the folder itself, ``""``.
        offset: of a write; the size, of a truncation.
        to: the new name, of a renaming.
    """

    began: int
    ended: int
    what: str
    path: str
    offset: int = 0
    data: bytes = b""
    to: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """Bytes that left a process for a socket or a file outside of the folder.

    Attributes:
        to: the file's path, or the socket's number.
    """

    began: int
    to: str
    data: bytes


class Recorder:
    """Runs programs under strace, one after the other or side by side below a shell, and reads what they did.

    Args:
        folder: what is watched; whatever is below it.
        ledger: a file outside of it, to which programs write what they rely on.
        logs: where the recordings and what the programs print go.
    """

    def __init__(self, folder: Path, ledger: Path, logs: Path) -> None:
        self.folder = folder.resolve()
        self.ledger = ledger.resolve()
        self._logs = logs
        self.parts: list[Path] = []

    def start(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path
    ) -> tuple[subprocess.Popen[bytes], Path]:
        """Start a program; give strace, whose exit code is the program's, and the file with what it prints."""
        strace = shutil.which("strace")
        if strace is None:
            raise CannotRecord(
                "There is no strace on this machine, by which writes are recorded: apt-get install strace."
            )
        part, log = (self._logs / f"{len(self.parts)}.{kind}" for kind in ("trace", "log"))
        self.parts.append(part)
        options = ["-f", "--seccomp-bpf", "-qq", "-y", "-xx", "-s", str(BYTES_MAX), "-e", f"trace={TRACED}"]
        with log.open("wb") as out:
            process = subprocess.Popen(
                [strace, *options, "-e", "signal=none", "-o", str(part), *argv],
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        return process, log

    def lines(self) -> Iterator[str]:
        """Give the lines of all parts in the order in which they were started."""
        for part in self.parts:
            with part.open("r", encoding="ascii", errors="strict") as file:
                yield from file


def read(recorder: Recorder) -> tuple[list[Change], list[Said]]:
    """Give what was done to the folder and what was said, each in the order in which it ended.

    Raises:
        CannotRecord: a file of the folder was changed in a way that the recording does not show.
    """
    reader = _Reader(str(recorder.folder), str(recorder.ledger))
    for number, line in enumerate(recorder.lines()):
        reader.line(number, line.rstrip("\n"))
    reader.end()
    return reader.changes, sorted(reader.said, key=lambda said: said.began)


class _Reader:
    def __init__(self, folder: str, ledger: str) -> None:
        self._folder = folder
        self._ledger = ledger
        self._folder_hex = _hex(folder)
        self._open: dict[str, tuple[int, str, str]] = {}
        self.changes: list[Change] = []
        self.said: list[Said] = []

    def line(self, number: int, line: str) -> None:
        found = _LINE.match(line)
        if found is None:
            return
        pid, resumed, rest, name, arguments = found.groups()
        if resumed is not None:
            began, name, text = self._open.pop(pid, (number, resumed, ""))
            self._call(began, number, name, text + rest)
        elif arguments.endswith(_UNFINISHED):
            # A process that died in a call is seen again under its number at the earliest when it is another.
            self._cut_off(pid)
            self._open[pid] = (number, name, arguments.removesuffix(_UNFINISHED))
        else:
            self._cut_off(pid)
            self._call(number, number, name, arguments)

    def end(self) -> None:
        for pid in list(self._open):
            self._cut_off(pid)

    def _cut_off(self, pid: str) -> None:
        if pid in self._open:
            began, name, text = self._open.pop(pid)
            self._call(began, NEVER, name, text)

    def _call(self, began: int, ended: int, name: str, text: str) -> None:
        if ended != NEVER:
            result = _RESULT.search(text)
            if result is None or result[1].startswith("-"):
                return
            given = int(result[1], 0)
        else:
            given = -1
        if self._folder_hex not in text:
            if name in ("write", "sendto", "sendmsg", "writev"):
                self._hear(began, name, text, given)
            elif name in ("sync", "syncfs"):
                raise CannotRecord(f"The model does not know {name}().")
            return
        handle = getattr(self, f"_{name}", None)
        if handle is None:
            raise CannotRecord(f"The model does not know {name}() on {self._folder}: {text[:300]}")
        handle(began, ended, text, given)

    # --- what is said ------------------------------------------------------------------------------

    def _hear(self, began: int, name: str, text: str, given: int) -> None:
        to = _first_path(text)
        if not to.startswith("socket:") and to != self._ledger:
            return
        pieces = re.findall(_HEX, text)
        if name == "sendmsg":
            pieces = re.findall(r"iov_base=" + _HEX, text)
        data = b"".join(map(_bytes, pieces[: 1 if name in ("write", "sendto") else None]))
        self.said.append(Said(began, to, data if given < 0 else data[:given]))

    # --- what is done ------------------------------------------------------------------------------

    def _below(self, path: str) -> str | None:
        if path == self._folder:
            return ""
        prefix = f"{self._folder}/"
        return path.removeprefix(prefix) if path.startswith(prefix) else None

    def _of(self, text: str) -> str | None:
        return self._below(_first_path(text))

    def _names(self, text: str) -> list[str]:
        """Give the paths that a call names as text, made absolute by what it names them from."""
        at = [_text(path) for path, _ in _FD.findall(text)] or [""]
        names = [_bytes(piece).decode() for piece in re.findall(_HEX, text)]
        return [
            name if name.startswith("/") else f"{at[min(i, len(at) - 1)]}/{name}"
            for i, name in enumerate(names)
        ]

    def _add(self, began: int, ended: int, what: str, path: str | None, **more: object) -> None:
        if path is not None:
            self.changes.append(Change(began, ended, what, path, **more))  # type: ignore[arg-type]

    def _openat(self, began: int, ended: int, text: str, given: int) -> None:
        path = self._below(self._names(text)[0])
        if "O_CREAT" in text:
            self._add(began, ended, "create", path)
        if "O_TRUNC" in text:
            self._add(began, ended, "truncate", path, offset=0)
        if "O_DSYNC" in text or "O_SYNC" in text or "O_TMPFILE" in text:
            raise CannotRecord(f"The model does not know how this is opened: {text[:300]}")

    def _pwrite64(self, began: int, ended: int, text: str, given: int) -> None:
        data = _bytes(re.findall(_HEX, text)[0])
        numbers = re.search(r'", (\d+), (\d+)', text)
        assert numbers is not None, text[-200:]
        assert len(data) == int(numbers[1]), "strace cut a write off"
        kept = data if given < 0 else data[:given]
        self._add(began, ended, "write", self._of(text), offset=int(numbers[2]), data=kept)

    def _write(self, began: int, ended: int, text: str, given: int) -> None:
        """Take a write where the file ends, which is what files of ours are written by that are no database's."""
        data = _bytes(re.findall(_HEX, text)[0])
        self._add(began, ended, "write", self._of(text), offset=-1, data=data if given < 0 else data[:given])

    def _ftruncate(self, began: int, ended: int, text: str, given: int) -> None:
        size = re.search(r">(?:\(deleted\))?, (\d+)", text)
        assert size is not None, text
        self._add(began, ended, "truncate", self._of(text), offset=int(size[1]))

    def _fdatasync(self, began: int, ended: int, text: str, given: int) -> None:
        if ended != NEVER:
            self._add(began, ended, "sync", self._of(text))

    _fsync = _fdatasync

    def _unlink(self, began: int, ended: int, text: str, given: int) -> None:
        self._add(began, ended, "remove", self._below(self._names(text)[0]))

    _unlinkat = _rmdir = _unlink

    def _mkdir(self, began: int, ended: int, text: str, given: int) -> None:
        self._add(began, ended, "make", self._below(self._names(text)[0]))

    _mkdirat = _mkdir

    def _rename(self, began: int, ended: int, text: str, given: int) -> None:
        old, new = (self._below(name) for name in self._names(text)[:2])
        assert old is not None, text
        assert new is not None, text
        self._add(began, ended, "rename", old, to=new)

    _renameat = _renameat2 = _rename

    def _mmap(self, began: int, ended: int, text: str, given: int) -> None:
        path = _first_path(text)
        if "MAP_SHARED" in text and "PROT_WRITE" in text and not path.endswith("-shm"):
            raise CannotRecord(f"{path} is written through memory, which strace does not see.")


def _first_path(text: str) -> str:
    found = _FD.search(text)
    return "" if found is None else _text(found[1])


def _text(printed: str) -> str:
    if "\\x" in printed:
        return _bytes(printed).decode()
    return printed


def _bytes(printed: str) -> bytes:
    return bytes.fromhex(printed.replace("\\x", ""))


def _hex(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())
