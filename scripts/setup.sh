#!/usr/bin/env bash
# Makes .venv and installs Onceward into it, in place.
#
#   scripts/setup.sh runtime   what the demo and the user need
#   scripts/setup.sh dev       also the tools of the tests, the checks and the docs
#
# Called by make when pyproject.toml changed; safe to run again at any time.
set -euo pipefail
cd "$(dirname "$0")/.."

what=${1:?runtime or dev}
venv=.venv

say() { printf '%s\n' "$*" >&2; }

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if command -v "$candidate" >/dev/null &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    say "No Python 3.11 or newer was found (tried ${PYTHON:-python3, python3.14 to python3.11})."
    say "Onceward cannot be set up without it."
    say "Install it (Debian 12, Ubuntu 23.04 and newer: apt-get install python3 python3-venv), or name one: make setup PYTHON=/path/to/python3"
    return 1
}

check_venv() {
    # Debian splits ensurepip off into python3-venv; without it the environment has no pip.
    "$1" -c 'import venv, ensurepip' 2>/dev/null && return
    local version
    version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    say "$1 (Python $version) has no venv with ensurepip."
    say "A virtual environment cannot be made without it."
    say "Install it: apt-get install python3-venv (or python$version-venv)."
    return 1
}

# The environment is useless when its Python was removed or upgraded under it.
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    check_venv "$python"
    say "Making $venv with $("$python" --version) ..."
    "$python" -m venv --clear "$venv"
fi

pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet)
rm -f "$venv/.setup-$what"
case $what in
    runtime)
        say "Installing Onceward and what it needs to run ..."
        "${pip[@]}" install --editable '.[postgres]'
        ;;
    dev)
        say "Installing Onceward and the tools to develop it (a minute or two the first time) ..."
        "${pip[@]}" install 'pip>=25.1' # the first that knows dependency groups; Debian 12 has 23.0
        "${pip[@]}" install --editable '.[postgres,fast]' --group dev
        ;;
    *)
        say "runtime or dev, not '$what'."
        exit 2
        ;;
esac
touch "$venv/.setup-$what"
