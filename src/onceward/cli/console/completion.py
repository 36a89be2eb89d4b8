"""``onceward completion``: the script by which a shell completes our commands."""

from __future__ import annotations

import click

_HELP = """Print the script by which SHELL completes commands and options.

\b
bash:  onceward completion bash > ~/.local/share/bash-completion/completions/onceward
zsh:   onceward completion zsh > ~/.zfunc/_onceward     (with ~/.zfunc in fpath)
fish:  onceward completion fish > ~/.config/fish/completions/onceward.fish"""


@click.command("completion", short_help="Print the script for completion in a shell.", help=_HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script of a shell."""
    from click.shell_completion import get_completion_class

    from onceward.cli.main import main

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(main, {}, "onceward", "_ONCEWARD_COMPLETE").source())
