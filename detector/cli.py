"""The ``stilltrue`` command: knows the names of its commands, and loads only the one that is called."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec

import click

from detector.commands.shared.run import quietly

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("detector.commands.serve:serve", "Run the detector."),
    "ask": ("detector.commands.ask:ask", "Take a snapshot now and print the verdict."),
    "watch": ("detector.commands.watch:watch", "Print verdicts as they change."),
    "agents": ("detector.commands.agents:agents", "List the processes that are connected."),
    "snapshots": ("detector.commands.snapshots:snapshots", "List the newest snapshots."),
    "incidents": ("detector.commands.incidents:incidents", "List deadlocks, with who, since when, and how they ended."),
    "show": ("detector.commands.show:show", "Show one snapshot or incident, as text, document or picture."),
    "evaluate": ("detector.commands.evaluate:evaluate", "Evaluate snapshot documents offline."),
    "simulate": ("detector.commands.simulate:simulate", "Run seeded worlds or a scenario file."),
    "check-predicate": ("detector.commands.check_predicate:check_predicate", "Hunt for a world that breaks a predicate."),
    "analyze": ("detector.commands.analyze:analyze", "Run the Spark pipeline over an archive."),
    "stream": (
        "detector.commands.stream:stream",
        "Give verdicts on an archive or a live detector as snapshots come, with Spark.",
    ),
    "compact": ("detector.commands.compact:compact", "Put the small files of an archive together."),
    "generate-archive": (
        "detector.commands.generate_archive:generate_archive",
        "Write an archive of any size, with known truth, for benchmarks.",
    ),
    "sidecar": ("detector.commands.sidecar:sidecar", "Run the proxy beside a program that knows nothing of us."),
    "webhook": ("detector.commands.webhook:webhook", "Run the webhook that puts the sidecar into pods."),
    "demo": ("detector.commands.demo:demo", "Start real gRPC processes that get into trouble, and see the verdict."),
}
"""Each command: where it is, and its sentence in the list (so that the list needs no imports)."""


class LazyGroup(click.Group):
    """Commands by name; click asks for a group class, hence the inheritance."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The commands that are installed, in the order a newcomer wants."""
        return [name for name, (place, _) in COMMANDS.items() if find_spec(place.partition(":")[0]) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module, _, function = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), function)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from the sentences above."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(
    cls=LazyGroup,
    context_settings={"auto_envvar_prefix": "STILLTRUE", "help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="stilltrue-detector", prog_name="stilltrue", message="%(prog)s %(version)s")
def cli() -> None:
    """Tell, while it runs, whether a distributed system is deadlocked, done, or has lost a token.

    Every flag can also be set in the environment: `--detector` of `ask` as STILLTRUE_ASK_DETECTOR,
    or as STILLTRUE_DETECTOR for all commands.

    \b
    Example:
      stilltrue serve &
      stilltrue ask deadlock
    """


def main() -> None:
    """Run the command; ends the process."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what goes wrong is said once, by us
    sys.exit(quietly(cli))


if __name__ == "__main__":
    main()
