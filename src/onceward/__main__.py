"""``python -m onceward`` is ``onceward``."""

from __future__ import annotations

from onceward.cli.main import main

if __name__ == "__main__":
    main(prog_name="onceward")
