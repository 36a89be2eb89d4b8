"""The command itself: what it knows, how it refuses, what it loads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import onceward
from onceward import __version__
from onceward.cli.main import COMMANDS, main
from onceward.cli.plain import plain
from onceward.cli.refusal import exit_code_of
from onceward.core import errors
from tests.cli.running import environment


def told(*arguments: str, env: dict[str, str] | None = None, color: bool = False) -> tuple[int, str]:
    done = CliRunner(env=env).invoke(main, list(arguments), prog_name="onceward", color=color)
    return done.exit_code, done.output


def test_version_and_help_name_the_version_and_every_command() -> None:
    assert told("--version") == (0, f"onceward {__version__}\n")

    status, text = told("--help")

    assert status == 0
    assert all(f"  {name} " in text for name in COMMANDS)
    assert "Exit status:" in text


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_each_command_has_help_that_fits_its_options(command: str) -> None:
    status, text = told(command, "--help")

    assert status == 0
    assert "\\b" not in text
    assert text.startswith(f"Usage: onceward {command} [OPTIONS]")


SAYS_NO_MORE_THAN_DONE = {
    *("completion", "dev", "serve", "worker"),  # a script, and what runs on
    *("migrate", "redeliver", "workflows forget", "tokens add", "tokens revoke"),
    *("users add", "users link", "users password", "users remove", "users role"),
}
"""Commands without ``--json``: a line and the status say all there is."""


def leaves(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Give every command that does something, by its words."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for word in command.list_commands(context):
        found = command.get_command(context, word)
        assert found is not None
        yield from leaves(found, f"{name} {word}".strip())


def test_every_command_that_tells_something_tells_it_as_json_too() -> None:
    without = {
        name for name, command in leaves(main) if not any("--json" in param.opts for param in command.params)
    }

    assert without == SAYS_NO_MORE_THAN_DONE


def test_every_command_that_asks_a_console_asks_it_over_the_api_too() -> None:
    options = {
        name: {opt for param in command.params for opt in param.opts} for name, command in leaves(main)
    }
    asking = {name for name, opts in options.items() if "--app" in opts}

    assert {name for name in asking if not {"--api", "--token", "--json"} <= options[name]} == set()
    assert {name for name, opts in options.items() if "--actor" in opts} - asking == set()


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["srve"], "Did you mean 'serve'?"),
        (["x"], f"There are: {', '.join(sorted(COMMANDS))}."),
        (["serve", "--prot", "1", "shop:app"], "--port"),
        (["migrate", "--sql", "--check"], "exclude each other"),
        (["serve"], "MODULE:APP"),
    ],
)
def test_a_wrong_call_is_told_what_was_meant(arguments: list[str], meant: str) -> None:
    status, text = told(*arguments)

    assert status == 2
    assert meant in text


def test_an_option_that_is_not_shown_is_not_proposed() -> None:
    _, text = told("serve", "--prt", "1", "shop:app")

    assert "--port" in text
    assert "--parent-fd" not in text


def test_an_error_of_ours_has_three_parts_and_no_traceback() -> None:
    status, text = told("migrate")

    assert (status, text.splitlines()) == (
        2,
        [
            "Error [config]: No store is named.",
            "  There is nowhere to keep events and runs.",
            '  Write App("sqlite:///orders.db"), or set ONCEWARD_STORE.',
        ],
    )


@pytest.mark.parametrize("error", ["ModuleNotFoundError", "ImportError"])
def test_a_driver_that_cannot_be_imported_is_told_with_what_installs_it(tmp_path: Path, error: str) -> None:
    (tmp_path / "psycopg.py").write_text(f"raise {error}('no pq wrapper available.\\nAttempts made: …')")
    (tmp_path / "shop.py").write_text(
        "from onceward import App\napp = App('postgresql://me@127.0.0.1:1/x')\n"
    )
    command = [sys.executable, "-m", "onceward", "migrate", "shop:app"]
    path = os.pathsep.join([str(tmp_path), *sys.path])

    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )

    assert done.returncode == 2
    assert "cannot be imported: no pq wrapper available. Attempts made: …." in done.stderr
    assert "pip install 'onceward[postgres]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_colours_yield_to_no_color() -> None:
    assert "\x1b[" in told("migrate", color=True)[1]
    assert "\x1b[" not in told("migrate", env={"NO_COLOR": "1"}, color=True)[1]


def test_an_unknown_variable_of_ours_is_an_error() -> None:
    status, text = told("migrate", env={"ONCEWARD_STOER": "sqlite:///a.db"})

    assert status == 2
    assert "Did you mean ONCEWARD_STORE?" in text


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.ConfigError("a"), 2),
        (errors.StoreUnavailable("a"), 3),
        (errors.SchemaNewer("a"), 3),
        (errors.OncewardError("a"), 1),
    ],
)
def test_the_exit_status_says_who_is_to_blame(error: errors.OncewardError, status: int) -> None:
    assert exit_code_of(error) == status


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("as it is: é…", "as it is: é…"),
        ("two\nlines\r\tand", "two\\nlines\\r\\tand"),
        ("red \x1b[31m", "red \\x1b[31m"),
        ("\u202eright to left\u2028", "\\u202eright to left\\u2028"),
        ("\udc80 \U000e0001", "\\udc80 \\U000e0001"),
    ],
)
def test_plain_text_cannot_move_a_cursor(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["serve", "--help"], ["demo", "--help"]])
def test_help_loads_no_server_no_driver_and_nothing_that_draws(arguments: list[str]) -> None:
    program = (
        "import sys\nfrom onceward.cli.main import COMMANDS, main\n"
        f"main({arguments!r}, prog_name='onceward', standalone_mode=False)\nprint(*sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment()
    )

    loaded = set(done.stdout.splitlines()[-1].split())
    assert "click" in loaded
    assert loaded & {"uvicorn", "rich", "sqlite3", "psycopg", "http.server", "http.client"} == set()


def test_ctrl_c_while_the_command_is_imported_gives_no_traceback() -> None:
    program = """
import sys
from pathlib import Path

class Interrupting:
    def find_spec(self, name, *_):
        if name == "onceward.cli.main":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
from onceward.__main__ import run
run()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), timeout=30
    )

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_package_itself_costs_next_to_nothing() -> None:
    """What is imported before the command can hear of Ctrl-C is short."""
    program = "import onceward, sys; print(*sorted(n for n in sys.modules if n.startswith('onceward')))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), timeout=30
    )

    assert done.stdout.split() == ["onceward", "onceward.version"]


def test_every_public_name_is_there_and_no_other() -> None:
    assert set(onceward.__all__) <= set(dir(onceward))
    assert all(getattr(onceward, name) is not None for name in onceward.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'LeaseLost'"):
        _ = onceward.LeaseLost  # type: ignore[attr-defined]
