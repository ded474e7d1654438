"""``stilltrue completion``: prints a shell completion script for commands, predicates, scopes and ids."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_STILLTRUE_COMPLETE"


@click.command(short_help="Print a shell completion script.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="SHELL")
def completion(shell: str) -> None:
    """Print the completion script for SHELL (bash, zsh, fish): commands, flags, predicates, scopes, processes and ids.

    Names that only a detector knows are looked up at STILLTRUE_DETECTOR, for at most half a second.

    \b
    Examples:
      stilltrue completion bash > ~/.local/share/bash-completion/completions/stilltrue
      stilltrue completion zsh > "${fpath[1]}/_stilltrue"
      stilltrue completion fish > ~/.config/fish/completions/stilltrue.fish
    """
    root = click.get_current_context().find_root().command
    completer = get_completion_class(shell)
    assert completer is not None, "click knows these shells"
    click.echo(completer(root, {}, "stilltrue", VARIABLE).source(), nl=False)
