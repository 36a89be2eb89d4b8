"""The ``onceward`` command, also as ``python -m onceward``: Ctrl-C while it is imported is no fault."""

from __future__ import annotations

import sys

INTERRUPTED = 130  # what a shell reports of a program that Ctrl-C ended


def run() -> None:
    """Import the command and run it."""
    try:
        from onceward.cli.main import main

        main(prog_name="onceward")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    run()
