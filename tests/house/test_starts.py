"""A process that is forked for a test is as one that was started, to the test and to itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import starts
from tests.starts import Forked

PORTRAIT = """
import asyncio, contextlib, gc, json, locale, os, resource, signal, subprocess, sys, threading, time, warnings
from pathlib import Path

descriptors = {}
for number in os.listdir("/proc/self/fd"):
    with contextlib.suppress(FileNotFoundError):
        descriptors[number] = os.readlink(f"/proc/self/fd/{number}").split(":")[0]

print(json.dumps({
    "argv": sys.argv,
    "path": sys.path,
    "environment": dict(os.environ),
    "children's environment": sorted(subprocess.check_output("env").decode("latin-1").splitlines()),
    "warnings": [sys.warnoptions, [str(one) for one in warnings.filters]],
    "flags": str(sys.flags),
    "folder": os.getcwd(),
    "parent": os.getppid(),
    "session": os.getsid(0) == os.getpid(),
    "group": os.getpgid(0) == os.getpid(),
    "descriptors": descriptors,
    "streams": [
        [one.encoding, one.errors, one.line_buffering, one.write_through, one.name]
        for one in (sys.stdout, sys.stderr)
    ],
    "handlers": {str(number): str(signal.getsignal(number)) for number in signal.valid_signals()},
    "mask": [str(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
    "ignored": [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(("SigB", "SigI", "SigC"))],
    "threads": [threading.active_count(), os.listdir("/proc/self/task") == [str(os.getpid())]],
    "limits": [resource.getrlimit(number) for number in range(16)],
    "mode": os.umask(0),
    "collector": [gc.isenabled(), gc.get_threshold()],
    "zone": [time.tzname, time.timezone],
    "locale": locale.setlocale(locale.LC_ALL),
    "main": sorted(vars(sys.modules["__main__"]).keys() - {"__annotations__", "__cached__"}),
    "name": [__name__, sys.modules["__main__"].__spec__ and sys.modules["__main__"].__spec__.name],
    "read": sys.stdin.read(),
}))
"""

Kind = Callable[..., "subprocess.Popen[Any]"]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONCEWARD_")}
    return kept | {"PYTHONPATH": starts.SRC, **more}


def portrait(kind: Kind, folder: Path, *arguments: str, env: Mapping[str, str], new: bool) -> Any:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, *arguments]
    with kind(command, cwd=folder, env=env, start_new_session=new, text=True, **pipes) as process:
        said, failed = process.communicate("a line\n", timeout=60)
        assert (process.returncode, failed) == (0, "")
        return json.loads(said)


@pytest.mark.parametrize(
    ("arguments", "more", "new"),
    [
        (["-c", PORTRAIT, "one", "-m"], {}, False),
        (["-m", "portrait", "--two"], {"ONCEWARD_STORE": "sqlite:///a.db", "TZ": "Asia/Tokyo"}, True),
        (["portrait.py"], {"PYTHONWARNINGS": "error", "NAME": "é\udcff"}, False),
        (["-W", "error", "-m", "portrait"], {"PYTHONPATH": f"{starts.SRC}:elsewhere"}, False),
    ],
    ids=["code", "module", "file", "warnings"],
)
def test_it_looks_the_same_from_inside(
    arguments: list[str], more: dict[str, str], new: bool, tmp_path: Path
) -> None:
    (tmp_path / "portrait.py").write_text(PORTRAIT)
    env = environment(**more)

    forked, started = (
        portrait(kind, tmp_path, *arguments, env=env, new=new) for kind in (Forked, subprocess.Popen)
    )

    assert forked == started
    assert forked["parent"] == os.getpid()


@pytest.mark.parametrize(
    "code",
    [
        "pass",
        "raise SystemExit(3)",
        "raise SystemExit('told')",
        "1 / 0",
        "raise KeyboardInterrupt",
        "import os; os._exit(7)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import atexit; atexit.register(print, 'over'); print('first')",
        "import threading; threading.Timer(0.1, print, ['late']).start()",
    ],
)
def test_it_ends_the_same(code: str, tmp_path: Path) -> None:
    ends = []
    for kind in (Forked, subprocess.Popen):
        with kind(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=-1
        ) as process:
            said, failed = process.communicate(timeout=60)
        ends.append((process.returncode, said, failed.splitlines()[-1:]))

    assert ends[0] == ends[1]


def test_it_is_stopped_continued_and_killed_as_any_process(tmp_path: Path) -> None:
    code = "print('here', flush=True); import signal; signal.pause()"
    with Forked(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), stdout=-1, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGSTOP)
        _, stopped = os.waitpid(process.pid, os.WUNTRACED)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(signal.SIGCONT)
        _, continued = os.waitpid(process.pid, os.WCONTINUED)
        alive = process.poll()
        process.kill()

        assert process.wait(60) == -signal.SIGKILL
    assert os.WIFSTOPPED(stopped)
    assert os.WIFCONTINUED(continued)
    assert alive is None


def test_settings_are_read_in_each_process_anew(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("from onceward import App\napp = App()\nprint(app.settings.store)\n")

    said = [
        starts.run("-m", "shop", cwd=tmp_path, env=environment(ONCEWARD_STORE=store)).stdout
        for store in ("sqlite:///a.db", "sqlite:///b.db")
    ]

    assert said == ["sqlite:///a.db\n", "sqlite:///b.db\n"]


def test_no_module_of_ours_was_imported_with_settings_or_left_anything_behind(tmp_path: Path) -> None:
    code = """
import logging, os, signal, sys, threading
from onceward.core import failpoints
print(failpoints.is_armed(), logging.root.handlers, logging.root.level, "onceward.cli.main" in sys.modules)
print([name for name in sys.modules if name.partition(".")[0] in ("tests", "pytest", "_pytest", "shop")])
"""
    done = starts.run("-c", code, cwd=tmp_path, env=environment())

    assert done.stdout == "False [] 30 True\n[]\n"


def test_a_folder_that_is_not_there_is_an_error_of_the_start(tmp_path: Path) -> None:
    for kind in (Forked, subprocess.Popen):
        with pytest.raises(FileNotFoundError):
            kind([sys.executable, "-c", "pass"], cwd=tmp_path / "none", env=environment())


def test_what_python_itself_reads_is_given_by_a_start_afresh(tmp_path: Path) -> None:
    def kind_of(*arguments: str, **more: str) -> type:
        with starts.start(*arguments, cwd=tmp_path, env=environment(**more)) as process:
            process.wait(60)
        return type(process)

    assert kind_of("-c", "pass") is Forked
    assert kind_of("-c", "pass", PYTHONHASHSEED="1") is subprocess.Popen
    assert kind_of("-c", "pass", PYTHONWARNINGS="ignore") is subprocess.Popen
    assert kind_of("-I", "-c", "pass") is subprocess.Popen


def test_an_orphan_of_another_process_is_not_adopted(tmp_path: Path) -> None:
    code = "import os, signal\nif os.fork(): os._exit(0)\nprint(os.getpid(), flush=True); signal.pause()"
    with Forked([sys.executable, "-c", code], cwd=tmp_path, env=environment(), stdout=-1) as process:
        assert process.stdout is not None
        orphan = int(process.stdout.readline())
        process.wait(60)
        status = Path(f"/proc/{orphan}/status").read_text()
        os.kill(orphan, signal.SIGKILL)

    parent = status.partition("PPid:")[2].split()[0]
    assert int(parent) not in (os.getpid(), process.pid)
