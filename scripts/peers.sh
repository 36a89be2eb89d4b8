#!/usr/bin/env bash
# Makes .venv-peers with the systems that the benchmarks compare with, at fixed versions: a ratio
# means something only when both sides of it are known. Kept apart from .venv, since a peer's
# dependencies must not decide ours.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$(.venv/bin/python -c 'import sys; print(sys._base_executable)')
[ -x .venv-peers/bin/python ] || "$python" -m venv --clear .venv-peers
echo "Installing the peers of the benchmarks ..." >&2
rm -f .venv-peers/.setup
.venv-peers/bin/python -m pip --disable-pip-version-check --quiet install 'dbos==3.4.0' 'psycopg[binary]==3.3.9'
touch .venv-peers/.setup
