"""`ralph completion`: a script for the shell."""

from __future__ import annotations

import sys

import click

from ralph.doors.cli.tree import Command

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_RALPH_COMPLETE"


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes ralph's words.

    For bash: eval "$(ralph completion bash)" in ~/.bashrc; likewise for zsh in ~/.zshrc; for fish:
    ralph completion fish > ~/.config/fish/completions/ralph.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    script = kind(context.find_root().command, {}, "ralph", _VARIABLE)
    sys.stdout.write(script.source_template % script.source_vars() + "\n")
