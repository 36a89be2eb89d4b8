"""DBOS Transact's side of one round; run by the Python of ``.venv-peers``. Prints one JSON object.

Settings: the best found. Workflows and steps are plain functions, started directly and not through
a queue; eight threads in one process (more are slower), or two processes of three. Its log is
quiet, its polls are short. On SQLite the file is switched to WAL beforehand, which nearly doubles
it; DBOS itself leaves SQLite's default.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dbos import DBOS, SetWorkflowID

from benchmarks import job as jobs
from benchmarks import ledger
from benchmarks.killing import FIRST_BODIES_SECONDS_MAX, STEP_S, STEPS, kill_and_restart, ledger_path
from benchmarks.measure import latencies_ms, percentile, sqlite_path
from benchmarks.payload import payload

WARM_UP_RUNS = 20
POLL_S = 0.01
COPIES = 20

job = jobs.parse("benchmarks.peers.dbos_peer")


def configure() -> None:
    """Make the system database known; nothing is opened yet."""
    if job.is_postgres:
        url = job.url.replace("postgresql://", "postgresql+psycopg://")
    else:
        url = job.url
        with contextlib.closing(sqlite3.connect(sqlite_path(url))) as connection:
            connection.execute("pragma journal_mode = wal")
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "log_level": "ERROR",
            "sys_db_pool_size": 32,
            "max_executor_threads": job.threads,
            "application_version": "1",
            # The same after a restart, so that it recovers its own; its siblings have their own.
            "executor_id": job.phase if job.phase.startswith("sibling") else "bench",
            "notification_listener_polling_interval_sec": POLL_S,
        }
    )


def settings(**more: Any) -> dict[str, Any]:
    """Give the settings of this side for the report."""
    found = {"version": importlib.metadata.version("dbos"), "threads": job.threads, **more}
    found["processes"] = job.processes
    if not job.is_postgres:
        found["journal"] = "WAL"
    return found


def by_threads(one: Callable[[int], None], numbers: Sequence[int], threads: int) -> None:
    """Call *one* for every number by so many threads."""
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, numbers))


# --- three steps --------------------------------------------------------------------------------


@DBOS.step()
def first(_: dict[str, Any]) -> dict[str, int]:
    return {"ok": 1}


@DBOS.step()
def second(_: dict[str, Any]) -> dict[str, int]:
    return {"ok": 2}


@DBOS.step()
def third(_: dict[str, Any]) -> dict[str, int]:
    return {"ok": 3}


@DBOS.workflow()
def three(event: dict[str, Any]) -> dict[str, Any]:
    first(event)
    second(event)
    third(event)
    return {"done": event["id"]}


def one_of_three(took: list[float]) -> Callable[[int], None]:
    """Give what carries one run to its end and notes how long that took."""

    def one(number: int) -> None:
        began = time.perf_counter()
        handle = DBOS.start_workflow(three, payload(number))
        assert handle.get_result(polling_interval_sec=POLL_S) == {"done": payload(number)["id"]}
        took.append(time.perf_counter() - began)

    return one


def three_step() -> dict[str, Any]:
    share = job.runs // job.processes
    by_threads(one_of_three([]), range(WARM_UP_RUNS), job.threads)
    if job.phase:  # a sibling: wait for the word, do the share, leave
        print(json.dumps({"ready": True}), flush=True)
        input()
        by_threads(one_of_three([]), range(share), job.threads)
        return {}
    siblings = [
        job.start_phase(f"sibling{number}", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for number in range(1, job.processes)
    ]
    for sibling in siblings:
        assert sibling.stdout is not None
        sibling.stdout.readline()
    took: list[float] = []
    with job.window().measure() as window:
        for sibling in siblings:
            assert sibling.stdin is not None
            sibling.stdin.write("go\n")
            sibling.stdin.flush()
        by_threads(one_of_three(took), range(share), job.threads)
        for sibling in siblings:
            sibling.wait()
    runs = share * job.processes
    return {**window.per_run(runs), **latencies_ms(took), "settings": settings(runs=runs)}


def low_load() -> dict[str, Any]:
    by_threads(one_of_three([]), range(WARM_UP_RUNS), 1)
    took: list[float] = []
    with job.window().measure() as window:
        by_threads(one_of_three(took), range(job.runs), 1)
    return {**window.per_run(job.runs), **latencies_ms(took), "settings": settings(runs=job.runs)}


# --- the other works ----------------------------------------------------------------------------


@DBOS.step()
def note(event_id: str) -> None:
    book = ledger.Ledger(ledger_path(job))
    book.begin(event_id)
    book.end(event_id)


@DBOS.workflow()
def paid(event: dict[str, Any]) -> None:
    note(event["id"])


def dedup() -> dict[str, Any]:
    """Start each event so many times at once, in process: DBOS has no receiver of its own."""

    def one(number: int) -> None:
        began = time.perf_counter()
        with SetWorkflowID(payload(number)["id"]):
            handles.append(DBOS.start_workflow(paid, payload(number)))
        took.append(time.perf_counter() - began)

    handles: list[Any] = []
    took: list[float] = []
    deliveries = [number for number in range(job.runs) for _ in range(COPIES)]
    with job.window().measure() as window:
        by_threads(one, deliveries, COPIES)
    for handle in handles:
        handle.get_result(polling_interval_sec=POLL_S)
    bodies = ledger.read(ledger_path(job)).begins.total()
    return {
        "accepted_per_s": round(len(deliveries) / window.wall_s, 1),
        **latencies_ms(took),
        "events": job.runs,
        "bodies": bodies,
        "is_right": bodies == job.runs,
        "settings": settings(through="in process, without HTTP and signatures"),
    }


@DBOS.step()
def tick(number: int) -> int:
    return number


@DBOS.step()
def first_new() -> float:
    at = time.perf_counter()
    if job.phase.startswith("first"):
        thousands = [round(b - a, 3) for a, b in itertools.pairwise(marks)]
        print(json.dumps({"took_s": round(marks[-1] - marks[0], 3), "thousands_s": thousands}), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return at


marks: list[float] = []


@DBOS.workflow()
def long(steps: int) -> float:
    for number in range(steps):
        if number % 1_000 == 0:
            marks.append(time.perf_counter())
        tick(number)
    marks.append(time.perf_counter())
    return first_new()


def history() -> dict[str, Any]:
    part, _, count = job.phase.partition("-")
    if part == "first":
        with SetWorkflowID(f"long-{count}"):
            DBOS.start_workflow(long, int(count)).get_result()
    elif part == "again":
        at = DBOS.retrieve_workflow(f"long-{count}").get_result(polling_interval_sec=POLL_S)
        return {"recall_s": round(at - launched, 4), "settings": settings(steps=int(count))}
    found = {}
    for steps in (job.runs // 5, job.runs):
        began = job.run_phase(f"first-{steps}")
        again = job.run_phase(f"again-{steps}")
        found[f"recall_{steps}_s"] = again["recall_s"]
    return {
        "first_run_s": began["took_s"],
        "last_thousand_over_first": round(began["thousands_s"][-1] / began["thousands_s"][0], 2),
        "thousands_s": began["thousands_s"],
        **found,
        "recall_s": again["recall_s"],
        "settings": again["settings"],
    }


@DBOS.workflow()
async def sleeper(due: float) -> float:
    await DBOS.sleep_async(max(0.001, due - time.time()))
    return time.time() - due


def sleepers() -> dict[str, Any]:
    """Start that many sleepers, all due at once when the last of them has been started."""
    due = time.time() + job.runs / 40 + 2
    handles: list[Any] = []
    began = time.perf_counter()
    with job.window().measure() as window:
        by_threads(lambda _: handles.append(DBOS.start_workflow(sleeper, due)), range(job.runs), job.threads)
        started_s = time.perf_counter() - began
        late_s = [handle.get_result(polling_interval_sec=POLL_S) for handle in handles]
    took = time.time() - due
    return {
        "starts_per_s": round(job.runs / started_s),
        "all_at_once_s": round(took, 2),
        "runs_per_s": round(job.runs / took, 1),
        "late_p99_ms": round(percentile(late_s, 99) * 1e3, 1),
        "others_cpu_share": window.others_share(),
        "settings": settings(sleepers=job.runs),
    }


@DBOS.step()
def slow_step(number: int, step: int) -> int:
    book = ledger.Ledger(ledger_path(job))
    book.begin(f"{number} {step}")
    time.sleep(STEP_S)
    book.end(f"{number} {step}")
    return step


@DBOS.workflow()
def slow(number: int) -> int:
    for step in range(STEPS):
        slow_step(number, step)
    return number


def recovery() -> dict[str, Any]:
    if job.phase == "first":
        for number in range(job.runs):
            DBOS.start_workflow(slow, number)
        time.sleep(FIRST_BODIES_SECONDS_MAX)
    elif job.phase == "again":
        while True:
            statuses = DBOS.list_workflows()
            finished = sum(status.status == "SUCCESS" for status in statuses)
            if finished == len(statuses):
                break
            time.sleep(0.2)
        return {
            "booted": booted,
            "all_finished_s": round(time.monotonic() - booted, 2),
            "started": len(statuses),
            "finished": finished,
            "settings": settings(runs=job.runs, step_ms=int(STEP_S * 1000)),
        }
    return kill_and_restart(job)


@DBOS.workflow()
def child(number: int) -> int:
    return number


@DBOS.workflow()
def parent(children: int) -> int:
    handles = [DBOS.start_workflow(child, number) for number in range(children)]
    return sum(handle.get_result(polling_interval_sec=POLL_S) for handle in handles)


def children() -> dict[str, Any]:
    DBOS.start_workflow(parent, 10).get_result()
    with job.window().measure() as window:
        total = DBOS.start_workflow(parent, job.runs).get_result()
    return {
        "took_s": round(window.wall_s, 3),
        "is_right": total == sum(range(job.runs)),
        **window.per_run(job.runs),
        "settings": settings(children=job.runs),
    }


def idle() -> dict[str, Any]:
    with job.window().measure() as window:
        time.sleep(job.runs)
    cpu_share = (window.cpu_side_s + window.cpu_server_s) / window.wall_s
    found: dict[str, Any] = {"cpu_percent": round(cpu_share * 100, 2), "settings": settings(seconds=job.runs)}
    if "commits" in window.counters:
        found["transactions_per_s"] = round(window.counters["commits"] / window.wall_s, 2)
    return found


if __name__ == "__main__":
    booted = launched = time.monotonic()
    if job.work in ("recovery", "history") and not job.phase:
        answer = globals()[job.work]()  # only starts the processes that do the work
    else:
        configure()
        DBOS.launch()
        launched = time.perf_counter()
        answer = globals()[job.work.replace("-", "_")]()
    print(json.dumps(answer), flush=True)
    os._exit(0)  # its threads would keep the process for a while
