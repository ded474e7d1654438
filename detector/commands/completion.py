"""``stilltrue completion``: the script by which a shell completes commands, predicates, scopes and ids."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_STILLTRUE_COMPLETE"


@click.command(short_help="Print the script by which a shell completes names.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="SHELL")
def completion(shell: str) -> None:
    """Print a script for SHELL (bash, zsh, fish) that completes commands, flags, predicates, scopes, processes and ids.

    It looks up names that only a detector knows at STILLTRUE_DETECTOR, for at most half a second.

    \b
    Examples:
      stilltrue completion bash > ~/.local/share/bash-completion/completions/stilltrue
      stilltrue completion zsh > "${fpath[1]}/_stilltrue"
      stilltrue completion fish > ~/.config/fish/completions/stilltrue.fish
    """
    root = click.get_current_context().find_root().command
    made = get_completion_class(shell)
    assert made is not None, "click knows these shells"
    click.echo(made(root, {}, "stilltrue", VARIABLE).source(), nl=False)
