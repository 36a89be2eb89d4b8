"""Recordings, images of each, a verdict on each image; and what was counted."""

from __future__ import annotations

import hashlib
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.campaign.power.disk import Disk, Image, lasting
from tests.campaign.power.judge import DATABASE, carry, judge, memory, put, ran_again
from tests.campaign.power.promises import Promise, promises
from tests.campaign.power.scene import EXPORT, Before, Scene, Shape
from tests.campaign.power.trace import NEVER, CannotRecord, Change, read

MEMORY = "/dev/shm"
"""A file system in memory, where there is one: the images' own syncs need reach no disk."""


def _of(path: str) -> Callable[[Sequence[Change]], frozenset[int]]:
    """Give the syncs of one file, by when they began."""
    return lambda changes: frozenset(
        change.began for change in changes if change.what == "sync" and change.path == path
    )


def _normal(changes: Sequence[Change]) -> frozenset[int]:
    """Give the syncs that ``synchronous=normal`` does without: not where the log begins, nor before it is copied."""
    last, found = "", set()
    pending: int | None = None
    for change in changes:
        if change.path == f"{DATABASE}-wal" and change.what == "write":
            if pending is not None:
                found.add(pending)
            pending, last = None, "header" if change.offset == 0 else "frame"
        elif change.path == f"{DATABASE}-wal" and change.what == "sync" and last == "frame":
            pending = change.began
        elif change.path == DATABASE and change.what == "write":
            pending = None  # the log is copied, and was synced for that
    return frozenset(found)


PLANTS: Mapping[str, Callable[[Sequence[Change]], frozenset[int]]] = {
    "log": _of(f"{DATABASE}-wal"),
    "file": _of(DATABASE),
    "folder": _of(""),
    "normal": _normal,
}
"""Which syncs are left out of a record, as though the store had not asked for them; by when they began."""

SHAPES = (
    Shape(),
    Shape(rounds=3, deliveries=10),
    Shape(workers=1),
    Shape(rounds=4, deliveries=6, workers=1),
)
BIG = Shape(rounds=1, deliveries=4, big=26)
"""Writes a log of more than `WAL_PAGES_MAX`, so that the store copies it into the file, and begins it anew."""

AGAIN = 4
"""Of how many images of a recording one is of what went on after a power loss."""

CARRIED_AT_ONCE = 3
TOLD_MAX = 5
"""How many of an image's violations are told."""


class Recording:
    """What one scene did, and every promise that it gave."""

    def __init__(self, scene: Scene) -> None:
        recorder = scene.record()
        self.changes, said = read(recorder)
        self.given = promises(said)
        if scene.before is not None:
            self.changes = lasting(scene.before.image.files) + self.changes
            self.given = [*(replace(promise, at=-1) for promise in scene.before.given), *self.given]  # type: ignore[type-var]
        self.export = Disk(self.changes).all_of_it().get(EXPORT)
        self._refuse_another_disk(recorder.folder)

    def _refuse_another_disk(self, folder: Path) -> None:
        """Look whether the record made the files that are there; else it is no record."""
        there = {
            f"{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }
        made = {
            name: content
            for name, content in Disk(self.changes).all_of_it().items()
            if not name.endswith("/")
        }
        if there != made:
            names = sorted(name for name in there.keys() | made.keys() if there.get(name) != made.get(name))
            raise CannotRecord(f"The record does not make the files that are there: {names}")

    def moments(self, count: int, draws: random.Random) -> list[int]:
        """Draw when the power goes: after a promise, and before, in and after every call that changes the disk."""
        given = [promise.at + 1 for promise in self.given if promise.at >= 0]
        seldom = [change for change in self.changes if change.what not in ("write", "sync")]
        places = (given, around(self.changes), around(seldom))
        return sorted(draws.choice(*draws.choices(places, (0.4, 0.4, 0.2))) for _ in range(count))


def around(changes: Sequence[Change]) -> list[int]:
    """Give the moments at which calls had just begun, and had just ended, and at which others had come between."""
    found = [change.began + 1 for change in changes]
    found += [change.ended + later for change in changes if change.ended != NEVER for later in (1, 4)]
    return [at for at in found if at > 0]


class Tier:
    """Judges images of recordings.

    Args:
        seed: for the figures.
        carry: of how many images one is carried to the end; 0 for none.
        plant: which syncs are left out.
        keep: where recordings and failing images stay.
    """

    def __init__(self, *, seed: int, carry: int, plant: str | None = None, keep: str | None = None) -> None:
        self.seed = seed
        self.violations: list[str] = []
        self.figures: dict[str, Any] = {
            "recordings": 0,
            "calls": 0,
            "promises": 0,
            "images": 0,
            "distinct": 0,
            "lossy": 0,
            "looks": 0,
            "carried": 0,
        }
        self._carry = carry
        self._plant = plant
        self._keep = None if keep is None else Path(keep)
        self._seen: set[bytes] = set()

    def told(self) -> str:
        counts = ", ".join(f"{what} {count}" for what, count in self.figures.items())
        return f"{counts}, violations {len(self.violations)}"

    def run(self, seed: int, images: int, shape: Shape | None = None) -> None:
        """Record one scene and what goes on after one of its power losses, and judge images of both."""
        with tempfile.TemporaryDirectory(prefix="onceward-power-") as home:
            scene = Scene(Path(home) / "first", seed, shape or SHAPES[seed % len(SHAPES)])
            first = self._recording(scene, f"recording-{seed}")
            self.judge(first, seed, images - images // AGAIN)
            if shape is None and images >= AGAIN and not self._plant:
                self._again(first, scene, seed, images // AGAIN)

    def _recording(self, scene: Scene, name: str) -> Recording:
        try:
            return Recording(scene)
        finally:
            if self._keep is not None:
                shutil.copytree(scene.home, self._keep / name, dirs_exist_ok=True)

    def _again(self, first: Recording, scene: Scene, seed: int, images: int) -> None:
        """Let real processes go on with an image, and judge images of that: the power went twice."""
        draws = random.Random(seed)
        at = draws.choice([promise.at + 1 for promise in first.given[len(first.given) // 3 :]])
        image = Disk(first.changes).image(at, draws, style="any")
        given = [promise for promise in first.given if promise.at < at]
        place = scene.home.parent / "between"
        found, facts = judge(put(image, place), given)
        self._tell(f"seed {seed}, between", image, found)
        if facts is None:
            return
        second = Scene(
            scene.home.parent / "second",
            seed,
            Shape(rounds=1, deliveries=6),
            Before(image, given, scene.token, scene.count),
        )
        recording = self._recording(second, f"recording-{seed}-again")
        self._tell(f"seed {seed}, gone on", image, ran_again(second.recorder.ledger, given, facts))
        self.judge(recording, seed, images, name=f"seed {seed} again")

    def judge(
        self, recording: Recording, seed: int, images: int, *, name: str = "", until_found: bool = False
    ) -> None:
        """Judge so many images of a recording; only until one is at fault, if that is all that is asked."""
        whole = name or f"seed {seed}"
        draws = random.Random(whole)
        forget = PLANTS[self._plant](recording.changes) if self._plant else frozenset()
        disk = Disk(recording.changes, forget=forget)
        self.figures["recordings"] += 1
        self.figures["calls"] += len(recording.changes)
        self.figures["promises"] += len(recording.given)
        in_memory = Path(MEMORY) if Path(MEMORY).is_dir() else None
        with (
            tempfile.TemporaryDirectory(prefix="onceward-power-", dir=in_memory) as folder,
            ThreadPoolExecutor(CARRIED_AT_ONCE) as pool,
        ):
            carried: list[tuple[str, Image, Future[list[str]]]] = []
            for number, at in enumerate(recording.moments(images, draws)):
                if until_found and self.violations:
                    break
                image = disk.image(at, random.Random(f"{whole} {number}"))
                given = [promise for promise in recording.given if promise.at < at]
                name = f"{whole} image {number}"
                place = Path(folder) / f"{number}"
                if image.files.get(EXPORT, recording.export) != recording.export:
                    self._tell(name, image, ["the export has its name and is not whole"])
                facts = self._one(name, image, given, place)
                if self._carry and number % self._carry == self._carry // 2 and facts is not None:
                    path = put(image, place, memory=None)
                    job = pool.submit(carry, path, place / "ledger", given, facts)
                    carried.append((name, image, job))
                else:
                    shutil.rmtree(place)
            for name, image, done in carried:
                self.figures["carried"] += 1
                self._tell(f"{name}, carried on", image, done.result())

    def _one(self, name: str, image: Image, given: list[Promise], place: Path) -> Any:
        draws = random.Random(name)
        path = put(image, place, memory=memory(draws))
        found, facts = judge(path, given)
        self.figures["images"] += 1
        self.figures["lossy"] += image.lost
        self.figures["looks"] += len(given)
        self._seen.add(_digest(image))
        self.figures["distinct"] = len(self._seen)
        self._tell(name, image, found)
        return facts

    def _tell(self, name: str, image: Image, found: list[str]) -> None:
        if not found:
            return
        more = f" and {len(found) - TOLD_MAX} more" if len(found) > TOLD_MAX else ""
        cut = f"{name}, cut at {image.at}, {image.style} by {image.sector}"
        self.violations.append(f"{cut}: {'; '.join(found[:TOLD_MAX])}{more}")
        if self._keep is not None:
            put(image, self._keep / name.replace(" ", "-").replace(",", ""))


def _digest(image: Image) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for name in sorted(image.files):
        content = image.files[name]
        found.update(f"{name}\0{len(content)}\0".encode())
        found.update(content)
    return found.digest()
