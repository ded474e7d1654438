"""``stilltrue completion``: prints a shell completion script for commands, predicates, scopes and ids."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_STILLTRUE_COMPLETE"
_MENDED = {
    "fish": {'(string split "," $completion)': '(string split -m 1 "," $completion)'},
    "zsh": {"in ${response}; do": 'in "${response[@]}"; do'},
}
"""click's scripts cut a summary at its first comma (fish), and complete no file before its first letter is typed (zsh)."""


@click.command(short_help="Print a shell completion script.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="SHELL")
def completion(shell: str) -> None:
    """Print the completion script for SHELL (bash, zsh, fish): commands, flags, predicates, scopes, processes and ids.

    Names that only a detector knows are looked up at STILLTRUE_DETECTOR, for at most half a second.

    \b
    Examples, for this shell; in its start-up file they are for every shell:
      source <(stilltrue completion bash)   # ~/.bashrc
      source <(stilltrue completion zsh)    # ~/.zshrc, after compinit
      stilltrue completion fish | source    # ~/.config/fish/config.fish
    """
    root = click.get_current_context().find_root().command
    completer = get_completion_class(shell)
    assert completer is not None, "click knows these shells"
    script = completer(root, {}, "stilltrue", VARIABLE).source()
    for wrong, right in _MENDED.get(shell, {}).items():
        script = script.replace(wrong, right)
    click.echo(script, nl=False)
