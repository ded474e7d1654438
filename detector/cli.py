"""The ``stilltrue`` command: lists its subcommands, and imports only the one that runs."""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click
from click.shell_completion import CompletionItem

from detector.commands.shared.run import run_command
from stilltrue.version import __version__

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("detector.commands.processes.run:run", "Run a program with the agent, without changing its code."),
    "serve": ("detector.commands.processes.serve:serve", "Run the detector."),
    "collect": (
        "detector.commands.processes.collect:collect",
        "Run a collector, which holds agents' connections for a coordinator.",
    ),
    "assemble": (
        "detector.commands.archives.assemble:assemble",
        "Assemble and evaluate the snapshots that collectors gather, with Spark.",
    ),
    "ask": ("detector.commands.live.ask:ask", "Take a snapshot now and print the verdict."),
    "watch": ("detector.commands.live.watch:watch", "Print verdicts as they change."),
    "agents": ("detector.commands.live.agents:agents", "List the connected processes, and the lost ones."),
    "stacks": ("detector.commands.live.stacks:stacks", "Show what the parties of a process are blocked on."),
    "doctor": ("detector.commands.live.doctor:doctor", "Explain what the answers do not cover, and how to fix it."),
    "snapshots": ("detector.commands.live.snapshots:snapshots", "List the newest snapshots."),
    "incidents": ("detector.commands.live.incidents:incidents", "List deadlocks: parties, duration, and how they ended."),
    "forget": ("detector.commands.live.forget:forget", "Forget lost processes that have ended."),
    "cure": ("detector.commands.live.cure:cure", "End a deadlock: abort the calls of its victims."),
    "show": ("detector.commands.live.show:show", "Show a snapshot or incident as text, JSON or a picture."),
    "evaluate": ("detector.commands.archives.evaluate:evaluate", "Evaluate snapshot documents offline."),
    "simulate": ("detector.commands.trial.simulate:simulate", "Run seeded worlds or a scenario file."),
    "check-predicate": (
        "detector.commands.trial.check_predicate:check_predicate",
        "Search for a run that shows that a predicate is not stable.",
    ),
    "analyze": ("detector.commands.archives.analyze:analyze", "Evaluate a whole archive, on this machine or on Spark."),
    "stream": (
        "detector.commands.archives.stream:stream",
        "Evaluate an archive or a live detector continuously, with Spark.",
    ),
    "backup": ("detector.commands.processes.backup:backup", "Back up a detector's state, even while it runs."),
    "restore": ("detector.commands.processes.restore:restore", "Restore a detector's state from a backup."),
    "compact": ("detector.commands.archives.compact:compact", "Merge the small files of an archive."),
    "generate-archive": (
        "detector.commands.archives.generate_archive:generate_archive",
        "Write an archive of any size, with known ground truth, for benchmarks.",
    ),
    "sidecar": ("detector.commands.processes.sidecar:sidecar", "Run the sidecar proxy for an uninstrumented program."),
    "probe": ("detector.commands.processes.probe:probe", "Report the lock waits in a database to the detector."),
    "webhook": ("detector.commands.processes.webhook:webhook", "Run the webhook that injects the sidecar into pods."),
    "completion": ("detector.commands.completion:completion", "Print a shell completion script."),
    "demo": ("detector.commands.trial.demo:demo", "Run real gRPC processes that deadlock, and show the verdict."),
}
"""Import path and summary of each command, so that listing the commands needs no imports."""


_COMMANDS_ELSEWHERE = {"help": "--help", "version": "--version"}
"""Words that are commands of other programs, and options of ours."""


_ARGUMENTS = "stilltrue.arguments"
"""Key of the command's own arguments in the context's ``meta``."""


class LazyGroup(click.Group):
    """A click group that imports a command when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The installed commands, in the order a new user needs them."""
        return [name for name, (place, _) in COMMANDS.items() if find_spec(place.partition(":")[0]) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module, _, function = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), function)
        assert isinstance(command, click.Command)
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                parameter.show_envvar = True
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that ``args[0]`` names; for a typo, suggest the nearest one."""
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            near = _COMMANDS_ELSEWHERE.get(args[0]) or " or ".join(get_close_matches(args[0], names, n=2))
            ctx.fail(f"no such command {args[0]!r}{f'; did you mean {near}?' if near else ''}")
        ctx.meta[_ARGUMENTS] = tuple(args[1:])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Click does not say which command's usage it is when a flag lacks its value."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            name = ctx.invoked_subcommand
            command = self.get_command(ctx, name) if error.ctx is None and name else None
            if command is not None:
                error.ctx = click.Context(command, info_name=name, parent=ctx)
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands with their summaries, without importing them, and flags."""
        commands = [
            CompletionItem(name, help=COMMANDS[name][1]) for name in self.list_commands(ctx) if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"auto_envvar_prefix": "STILLTRUE", "help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="stilltrue", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Detect whether a running distributed system is deadlocked, has terminated, or has lost a token.

    Every flag can also be set by an environment variable, which the help of its command names: `--detector` by
    STILLTRUE_DETECTOR for all commands, `--timeout-seconds` of `ask` by STILLTRUE_ASK_TIMEOUT_SECONDS.

    \b
    Example:
      stilltrue serve &
      stilltrue ask deadlock
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        return
    if any("STIL" in name.upper() for name in os.environ):  # the others are spared the time of the imports
        warns = import_module("detector.commands.options.misspelt_variables")
        warns.warn_of_misspelt(context, context.invoked_subcommand, context.meta.get(_ARGUMENTS, ()))


def main() -> None:
    """Run the command and exit."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # errors are reported once, by us
    sys.exit(run_command(cli))


if __name__ == "__main__":
    main()
