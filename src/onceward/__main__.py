"""``python -m onceward`` is ``onceward``."""

from __future__ import annotations

from onceward.cli.main import main

main(prog_name="onceward")
