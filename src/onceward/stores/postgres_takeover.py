"""Processes that come, go and are lost: the rows that hold leases, and the runs that hang on them.

Each lost process is a transaction of its own, so that one that cannot be had yet, since its last
batch is still under way, does not keep the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import psycopg

from onceward.core import errors, failpoints
from onceward.core.model import Millis, ProcessRow, RunRow, WorkflowRow
from onceward.core.ports import TakenOver
from onceward.core.states import RunState
from onceward.core.takeover import CRASH_LIMIT, lost_run
