"""``stilltrue probe``: joins a database, which has no agent, to the detector."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from detector.commands.shared.run import CommandError
from detector.ops.logs import Log, configure
from detector.probe.reading import Source, UnusableServerError
from detector.service.settings import LOG_FORMATS
from stilltrue.settings import SettingRefusedError, read_settings

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FILES = ("tls_ca_file", "tls_cert_file", "tls_key_file", "token_file")


def _option(*names: str, **more: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(*names, show_envvar=True, **more)


@click.group(invoke_without_command=True)
@click.pass_context
def probe(context: click.Context) -> None:
    """Join a server without an agent to the detector, as a process whose parties are the server's sessions."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def _of_member(service: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of any probe, whose service is ``service`` by default."""
    options = (
        _option("--service", envvar="STILLTRUE_SERVICE", default=service, show_default=True, help="The service it belongs to."),
        _option(
            "--instance",
            envvar="STILLTRUE_INSTANCE",
            help="Its name, unique among all processes.  [default: from POD_NAME or the host]",
        ),
        _option(
            "--detector",
            envvar="STILLTRUE_DETECTOR",
            metavar="HOST:PORT",
            help="Address of the detector.  [default: 127.0.0.1:7600]",
        ),
        _option("--tls-ca-file", envvar="STILLTRUE_TLS_CA_FILE", type=_FILE, help="PEM CA bundle to verify the detector with."),
        _option(
            "--tls-cert-file", envvar="STILLTRUE_TLS_CERT_FILE", type=_FILE, help="PEM client certificate for the detector."
        ),
        _option("--tls-key-file", envvar="STILLTRUE_TLS_KEY_FILE", type=_FILE, help="PEM private key of that certificate."),
        _option("--token-file", envvar="STILLTRUE_TOKEN_FILE", type=_FILE, help="File with the bearer token for the detector."),
        _option("--log-format", default="logfmt", show_default=True, type=click.Choice(LOG_FORMATS), help="Log format."),
    )

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


@probe.command()
@click.argument("dsn", envvar="STILLTRUE_PROBE_DSN")
@_of_member("postgres")
def postgres(dsn: str, log_format: str, **given: Any) -> None:
    """Report the lock waits of one PostgreSQL database (14 or newer), whose address DSN is as libpq takes it.

    It reads pg_stat_activity and pg_locks once for each snapshot, over one read-only connection, with a statement timeout of
    half a second. Its role needs pg_monitor to see the sessions of others. Give a password by PGPASSWORD or a passfile.

    \b
    Examples:
      stilltrue probe postgres postgresql://stilltrue@db.shop:5432/orders --instance orders-db
      STILLTRUE_PROBE_DSN="host=db.shop dbname=orders user=stilltrue" stilltrue probe postgres
    """
    if find_spec("psycopg") is None:
        raise CommandError("psycopg is not installed: pip install 'stilltrue-detector[probe]'")
    from detector.probe.postgres import Database  # noqa: PLC0415 - psycopg is an optional extra

    _run(lambda instance: Database(dsn, instance), log_format, given)


@probe.command()
@click.argument("url", envvar="STILLTRUE_PROBE_URL")
@_option(
    "--lock",
    "locks",
    envvar="STILLTRUE_PROBE_LOCKS",
    multiple=True,
    default=("*lock*",),
    show_default=True,
    help="The name of a lock, or a pattern as SCAN takes it; may be repeated.",
)
@_of_member("redis")
def redis(url: str, locks: tuple[str, ...], log_format: str, **given: Any) -> None:
    """Report who has the locks of redis-py in one database of a Redis server (6.2 or newer): redis://HOST:PORT/DATABASE.

    It looks for keys that are called so, and reads their values (128 bytes at most) and time to live, once for each snapshot.
    Its user needs SCAN, STRLEN, GETRANGE, PTTL, MULTI and CLIENT LIST.

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
    """Run a probe of the ``source`` that is made for an instance's name, until it is told to stop."""
    from detector.probe.app import Probe  # noqa: PLC0415 - it takes time to load

    for name in _FILES:
        given[name] = None if given[name] is None else str(given[name])
    configure(log_format)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        settings = read_settings(given)
        Probe(settings, source(settings.instance), Log("stilltrue")).run(stop)
    except (SettingRefusedError, UnusableServerError) as error:
        raise CommandError(str(error)) from None
