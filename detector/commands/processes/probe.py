"""``stilltrue probe``: reports the lock waits of a server without an agent to the detector."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import click

from detector.commands.options.shared_options import agent_options, log_format_option
from detector.commands.shared.own_process import mark_as_detectors
from detector.commands.shared.run import CommandError
from detector.ops.logs import Log, configure
from detector.ops.process.stop_signal import stopped_by_signals
from detector.probe.reading import Source, UnusableServerError
from stilltrue.settings import SettingRefusedError, read_settings

_FILES = ("tls_ca_file", "tls_cert_file", "tls_key_file", "token_file")


def _option(*names: str, **more: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(*names, show_envvar=True, **more)


class _Probes(click.Group):
    """The probes, which an error names if there is none of the given name."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the probe that ``args[0]`` names."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            ctx.fail(f"there is no probe {args[0]!r}, only {' and '.join(sorted(self.commands))}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Probes, invoke_without_command=True)
@click.pass_context
def probe(context: click.Context) -> None:
    """Report a server without an agent to the detector, as a process whose parties are its sessions.

    \b
    Examples:
      stilltrue probe postgres postgresql://stilltrue@db.shop:5432/orders --instance orders-db
      stilltrue probe redis redis://cache.shop:6379/0 --lock 'lock:*' --instance cache-locks
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def _member_options(service: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of every probe; ``service`` is the default of ``--service``."""
    own = _option("--service", envvar="STILLTRUE_SERVICE", default=service, show_default=True, help="Service of this process.")
    return lambda command: own(agent_options(log_format_option(command)))


@probe.command(short_help="Report the lock waits in a PostgreSQL database.")
@click.argument("dsn", envvar="STILLTRUE_PROBE_DSN")
@_member_options("postgres")
def postgres(dsn: str, log_format: str, **given: Any) -> None:
    """Report the lock waits in one PostgreSQL database (14 or newer); DSN is a libpq connection string or URI.

    Reads pg_stat_activity and pg_locks once per snapshot, over one read-only connection, with a statement timeout of half a
    second. The role needs pg_monitor to see other users' sessions. Pass the password in PGPASSWORD or a passfile.

    \b
    Examples:
      stilltrue probe postgres postgresql://stilltrue@db.shop:5432/orders --instance orders-db
      STILLTRUE_PROBE_DSN="host=db.shop dbname=orders user=stilltrue" stilltrue probe postgres
    """
    if find_spec("psycopg") is None:
        raise CommandError("psycopg is not installed: pip install 'stilltrue-detector[probe]'")
    from detector.probe.postgres import Database  # noqa: PLC0415 - psycopg is an optional extra

    _run(lambda instance: Database(dsn, instance), log_format, given)


@probe.command(short_help="Report the holders of redis-py's locks.")
@click.argument("url", envvar="STILLTRUE_PROBE_URL")
@_option(
    "--lock",
    "locks",
    envvar="STILLTRUE_PROBE_LOCKS",
    multiple=True,
    default=("*lock*",),
    show_default=True,
    help="Name of a lock, or a pattern for SCAN; repeatable.",
)
@_member_options("redis")
def redis(url: str, locks: tuple[str, ...], log_format: str, **given: Any) -> None:
    """Report the holders of redis-py locks in one database of a Redis server (6.2 or newer): redis://HOST:PORT/DATABASE.

    Finds the keys with these names, and reads their values (at most 128 bytes) and times to live, once per snapshot. The user
    needs SCAN, STRLEN, GETRANGE, PTTL, MULTI and CLIENT LIST.

    \b
    Examples:
      stilltrue probe redis redis://cache.shop:6379/0 --lock 'lock:*' --instance cache-locks
      STILLTRUE_PROBE_URL=redis://cache.shop:6379/0 stilltrue probe redis --lock ledger --lock stock
    """
    if find_spec("redis") is None:
        raise CommandError("redis is not installed: pip install 'stilltrue-detector[probe]'")
    from detector.probe.redis import RedisLocks  # noqa: PLC0415 - redis is an optional extra

    _run(lambda instance: RedisLocks(url, instance, locks), log_format, given)


def _run(source: Callable[[str], Source], log_format: str, given: dict[str, Any]) -> None:
    """Run a probe until it is stopped; ``source`` opens the server, given the instance's name."""
    from detector.probe.app import Probe  # noqa: PLC0415 - slow to import

    for name in _FILES:
        given[name] = None if given[name] is None else str(given[name])
    configure(log_format)
    mark_as_detectors()
    try:
        settings = read_settings(given)
        with stopped_by_signals() as stop:
            Probe(settings, source(settings.instance), Log("stilltrue")).run(stop)
    except (SettingRefusedError, UnusableServerError) as error:
        raise CommandError(str(error)) from None
