"""Power-loss images of a recorded store, in the size of a commit; and that the tool finds what it is to find."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.campaign.power.disk import Disk, lasting
from tests.campaign.power.judge import judge, put, ran_again
from tests.campaign.power.promises import Began
from tests.campaign.power.scene import EXPORT, Scene, Shape
from tests.campaign.power.tier import PLANTS, Recording, Tier
from tests.campaign.power.trace import NEVER, CannotRecord, Change, Recorder

pytestmark = pytest.mark.timeout(600)  # it takes seconds, and a machine may have much else to do

SEED = 7
IMAGES = 200
PLANTED_IMAGES = 60


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return Recording(Scene(tmp_path_factory.mktemp("power") / "scene", SEED, Shape(deliveries=8)))


def test_every_image_keeps_what_was_promised_and_goes_on(recording: Recording) -> None:
    tier = Tier(seed=SEED, carry=50)
    tier.judge(recording, SEED, IMAGES)

    assert tier.violations == []
    assert tier.figures["images"] == IMAGES
    assert tier.figures["carried"] == IMAGES // 50
    assert min(tier.figures["distinct"], tier.figures["lossy"], tier.figures["promises"]) > IMAGES // 4


def test_the_log_was_copied_into_the_file_and_begun_anew_while_it_was_recorded(recording: Recording) -> None:
    """Else the images would tell nothing of checkpoints, nor of a log whose name is new."""
    calls = [(change.what, change.path) for change in recording.changes]
    assert calls.count(("write", "shop.db")) > 10
    assert calls.count(("remove", "shop.db-wal")) > 1
    assert calls.count(("sync", "")) > 1


@pytest.mark.parametrize("plant", sorted(PLANTS))
def test_syncs_that_are_left_out_are_found(recording: Recording, plant: str) -> None:
    tier = Tier(seed=SEED, carry=0, plant=plant)
    tier.judge(recording, SEED, PLANTED_IMAGES, until_found=True)

    assert tier.violations


def test_a_checkpoint_that_a_later_body_relied_on_is_missed(recording: Recording, tmp_path: Path) -> None:
    path = put(
        Disk(recording.changes).image(NEVER, random.Random(SEED), style="everything"), tmp_path / "disk"
    )
    sound, facts = judge(path, recording.given)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("delete from onceward_step where name = 'book'")
        connection.commit()
    found, _ = judge(path, recording.given)

    assert sound == []
    assert [text for text in found if "'book'" in text and "is missing" in text]
    assert facts is not None
    assert len(facts.runs) > 5


def test_a_saved_step_that_runs_again_is_told(recording: Recording, tmp_path: Path) -> None:
    path = put(
        Disk(recording.changes).image(NEVER, random.Random(SEED), style="everything"), tmp_path / "disk"
    )
    _, facts = judge(path, recording.given)
    assert facts is not None
    saved = next(key for key in facts.steps if facts.is_done(key))
    asked = ("a run", 1, "asked", "")
    ledger = tmp_path / "ledger"
    ledger.write_text("".join(f"{json.dumps(_began(key))}\n" for key in (saved, asked)))

    found = ran_again(ledger, [Began(0, asked, {}, asks=True)], facts)

    assert found == [
        f"step {saved} was saved and ran again",
        f"step {asked} had begun and ran again before anybody was asked",
    ]


def _began(key: tuple[str, int, str, str]) -> dict[str, object]:
    run, generation, step, item = key
    return {"what": "began", "run": run, "generation": generation, "step": step, "item": item}


def test_an_export_is_on_the_disk_before_it_has_its_name(recording: Recording) -> None:
    changes = recording.changes
    (named,) = [change for change in changes if change.what == "rename" and change.to == EXPORT]
    written = [change for change in changes if change.path == named.path and change.what == "write"]
    synced = [change for change in changes if change.path == named.path and change.what == "sync"]
    assert max(write.ended for write in written) < synced[-1].began
    assert synced[-1].ended < named.began


# --- the tool itself ------------------------------------------------------------------------------------


def test_an_image_has_what_was_synced_and_of_the_rest_whatever_may_have_arrived() -> None:
    """Two sectors, a synced write and two that were not, in a file whose name lasts and one whose name does not."""
    a, b, c = b"a" * 1024, b"b" * 1024, b"c" * 512
    changes = [
        Change(0, 0, "create", "x"),
        Change(1, 1, "sync", ""),
        Change(2, 2, "write", "x", 0, a),
        Change(3, 3, "sync", "x"),
        Change(4, 4, "write", "x", 0, b),
        Change(5, 5, "write", "x", 1024, c),
        Change(6, 6, "create", "y"),
    ]
    seen = set()
    for seed in range(300):
        image = Disk(changes).image(7, random.Random(seed))
        x = image.files["x"]
        if image.sector == 512:
            # What a sector holds that the file was made longer by and that did not arrive is anything.
            seen.add((x[:512], x[512:1024], len(x), x[1024:] == c, "y" in image.files))
        assert x[:512] in (a[:512], b[:512])
        assert x[512:1024] in (a[:512], b[:512])
    assert {entry[0] + entry[1] for entry in seen} == {
        x + y for x in (a[:512], b[:512]) for y in (a[:512], b[:512])
    }
    assert {entry[2] for entry in seen} == {1024, 1536}
    assert {entry[3:] for entry in seen} == {(x, y) for x in (True, False) for y in (True, False)}

    before = Disk(changes).image(4, random.Random(0))
    assert before.files == {"x": a}
    assert not before.lost


def test_what_a_scene_begins_with_lasts() -> None:
    files = {"a": b"a", "b/": b"", "b/c": b"c"}
    for seed in range(20):
        assert Disk(lasting(files)).image(0, random.Random(seed)).files == files


def test_without_strace_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotRecord, match="apt-get install strace"):
        Recorder(tmp_path, tmp_path / "ledger", tmp_path).start(["true"], env={}, cwd=tmp_path)


def test_a_record_that_does_not_make_the_files_is_none(tmp_path: Path) -> None:
    """A write that strace did not see, as through mapped memory, must not go unnoticed."""
    scene = Scene(tmp_path / "scene", SEED)
    process, _ = scene.recorder.start(["sh", "-c", "echo seen > disk/a"], env=scene.env(), cwd=scene.home)
    assert process.wait(60) == 0
    assert shutil.which("strace")
    scene.record = lambda: scene.recorder  # type: ignore[method-assign]
    (scene.folder / "a").write_text("unseen\n")

    with pytest.raises(CannotRecord, match=r"\['a'\]"):
        Recording(scene)
