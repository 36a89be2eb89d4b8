"""Import every module of the installed Onceward; run by ``check_dist.sh`` in an empty environment.

Takes the extra that was installed, or nothing. A module may need a package of an extra that was
not installed, and no other.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from importlib.metadata import requires

PACKAGES = {"psycopg": "postgres", "httptools": "fast", "uvloop": "fast"}

OF_THE_USER = {
    "onceward.runtime.transactions.django_links": "django",
    "onceward.runtime.transactions.sqlalchemy_links": "sqlalchemy",
    "onceward.testing.plugin": "pytest",
}
"""Modules that only who has the package himself ever imports."""


def main(extra: str) -> int:
    """Give 0 when everything that must import does."""
    declared = {
        found[1] for line in requires("onceward") or [] if (found := re.search(r"extra == ['\"](\w+)", line))
    }
    if extra and extra not in declared:
        sys.stderr.write(f"the installed package knows no extra {extra!r}; it has {sorted(declared)}\n")
        return 1
    for package, belongs_to in PACKAGES.items():
        if belongs_to == extra:
            importlib.import_module(package)
    import onceward

    names = sorted(module.name for module in pkgutil.walk_packages(onceward.__path__, "onceward."))
    failures = [f"{name}: {fault}" for name in names if (fault := fault_of(name, extra)) is not None]
    sys.stderr.writelines(f"{failure}\n" for failure in failures)
    return 1 if failures or not names else 0


def fault_of(name: str, extra: str) -> str | None:
    """Import a module; give what went wrong, or None."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        needed = PACKAGES.get(package)
        if OF_THE_USER.get(name) == package:
            return None
        if needed is None or needed == extra:
            return f"{error} is not in what was installed"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
