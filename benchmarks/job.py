"""One round of one work on one side, as a process is asked to do it.

Standard library only, since the peers import it with a Python of their own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any, NamedTuple

from benchmarks.measure import Window, is_postgres

CHILD_SECONDS_MAX = 540


class Job(NamedTuple):
    """Where, how much, and which part of the work this process is.

    ``module`` is the program, so that a work can start more processes of its own side; ``phase``
    is empty in the process that measures.
    """

    module: str
    work: str
    url: str
    server_pid: int | None
    runs: int
    directory: str
    phase: str
    threads: int
    processes: int

    @property
    def is_postgres(self) -> bool:
        """Say which store it is."""
        return is_postgres(self.url)

    def window(self) -> Window:
        """Give a window over this job's store."""
        return Window(self.url, self.server_pid)

    def start_phase(self, phase: str, **pipes: Any) -> subprocess.Popen[str]:
        """Start another process of this job, for a part that is killed or that serves."""
        command = [sys.executable, "-m", self.module, *self.arguments(), "--phase", phase]
        return subprocess.Popen(command, text=True, **pipes)

    def run_phase(self, phase: str) -> dict[str, Any]:
        """Run another process of this job to its end, or its killing; give what it printed last."""
        with self.start_phase(phase, stdout=subprocess.PIPE) as child:
            output, _ = child.communicate(timeout=CHILD_SECONDS_MAX)
        found: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
        return found

    def arguments(self) -> list[str]:
        """Give the command line that `parse` reads."""
        words = [self.work, "--url", self.url, "--directory", self.directory, "-n", str(self.runs)]
        words += ["--threads", str(self.threads), "--processes", str(self.processes)]
        return words if self.server_pid is None else [*words, "--server-pid", str(self.server_pid)]


def parse(module: str) -> Job:
    """Read the command line of a side's program."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("work")
    parser.add_argument("--url", required=True)
    parser.add_argument("--directory", required=True)
    parser.add_argument("-n", type=int, required=True, dest="runs")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--server-pid", type=int)
    parser.add_argument("--phase", default="")
    return Job(module=module, **vars(parser.parse_args()))
