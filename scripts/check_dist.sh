#!/usr/bin/env bash
# Installs what 'make dist' built into empty environments, the wheel with each extra and the
# source distribution without one, and imports every module there.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$PWD/.venv/bin/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

check() { # file, extra or nothing
    local venv="$work/venv" file=$1 extra=$2
    "$python" -m venv --clear "$venv"
    "$venv/bin/python" -m pip --disable-pip-version-check --quiet install "$file${extra:+[$extra]}"
    # From another directory, so that the installed package is what gets imported.
    (cd "$work" && "$venv/bin/python" -I "$OLDPWD/scripts/import_all.py" "$extra" && "$venv/bin/onceward" --version >/dev/null)
    echo "$(basename "$file")${extra:+[$extra]}: installs, imports, answers --version"
}

shopt -s nullglob
wheels=(dist/*.whl) sources=(dist/*.tar.gz)
if [ ${#wheels[@]} -ne 1 ] || [ ${#sources[@]} -ne 1 ]; then
    echo "Expected one wheel and one source distribution in dist/; run 'make dist'." >&2
    exit 1
fi
check "$PWD/${sources[0]}" ""
check "$PWD/${wheels[0]}" ""
extras=$("$python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"])')
for extra in $extras; do
    check "$PWD/${wheels[0]}" "$extra"
done
