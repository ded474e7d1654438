"""``stilltrue serve``: runs the detector; its flags are the fields of :class:`~detector.service.settings.Settings`."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from detector.assembly.cluster import RecordsUnavailableError
from detector.commands.shared.announcement import announce
from detector.commands.shared.own_process import mark_as_detectors
from detector.commands.shared.run import CommandError
from detector.core.registry import RefusedSettingError, UnknownPredicateError, check_installed, check_settings
from detector.ops.logs import Log, configure
from detector.ops.process.file_descriptors import raise_limit
from detector.service.app import Listening
from detector.service.app import serve as run_service
from detector.service.deprecated_names import former_names, renamed_settings
from detector.service.grpc_api.port import AddressInUseError
from detector.service.grpc_api.roles import SecurityError
from detector.service.kubernetes.api import NoClusterError
from detector.service.notify import NotificationRefusedError
from detector.service.settings import (
    LOG_FORMATS,
    SettingError,
    Settings,
    expectations_from_texts,
    flag,
    predicate_settings_from_texts,
    scope_from_text,
)
from detector.service.storage.sqlite import DirectoryInUseError, NewerStateError


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """A flag for each setting."""
    for each in reversed(dataclasses.fields(Settings)):
        if not each.metadata:
            continue
        kind: Any = type(each.default)
        if isinstance(each.default, bool):
            kind = None
        elif each.default is None:
            kind = click.Path(path_type=Path, dir_okay=False, exists=True)
        elif isinstance(each.default, Path):
            kind = click.Path(path_type=Path, file_okay=False)
        elif each.name == "log_format":
            kind = click.Choice(LOG_FORMATS)
        command = click.option(
            flag(each.name), each.name, type=kind, is_flag=kind is None, default=each.default,
            help=_sentence(each.metadata["help"]), show_default=each.default not in (None, "", False), show_envvar=True,
        )(command)  # fmt: skip
        for was in former_names(each.name):
            command = click.option(flag(was), was, type=kind, hidden=True)(command)
    return command


def _sentence(text: str) -> str:
    """``text`` as a sentence; a name such as gRPC keeps its first letter."""
    first = text.split(maxsplit=1)[0]
    return (text if first != first.lower() else text[0].upper() + text[1:]) + "."


@click.command(short_help="Run the detector.")
@_options
@click.option(
    "--scope", "scopes", multiple=True, metavar="NAME=LABEL=VALUE[,...]", envvar="STILLTRUE_SERVE_SCOPES", show_envvar=True,
    help="A named group of processes, selected by labels; repeatable (in the environment: space-separated).",
)  # fmt: skip
@click.option(
    "--set", "sets", multiple=True, metavar="PREDICATE.KEY=VALUE", envvar="STILLTRUE_SERVE_SET", show_envvar=True,
    help="A predicate setting, such as token-lost.fact=lease; repeatable.",
)  # fmt: skip
@click.option(
    "--expect", "expects", multiple=True, metavar="[SCOPE=]NUMBER|NAME,...", envvar="STILLTRUE_SERVE_EXPECT", show_envvar=True,
    help="Processes that must be connected before termination, quiescence and tokens are answered: a number, or names of "
    "instances or services; service:NAMESPACE/NAME means the pods of a Kubernetes Service. Repeatable (in the environment: "
    "space-separated).",
)  # fmt: skip
def serve(scopes: tuple[str, ...], sets: tuple[str, ...], expects: tuple[str, ...], **values: Any) -> None:
    """Run the detector until SIGINT or SIGTERM. Agents and clients connect to --port; metrics and the web UI are served
    on --http-port (plain HTTP, on loopback unless --http-host is set).

    The first line on standard output names the addresses it listens on; events are logged to standard error, one per line.

    \b
    Example:
      stilltrue serve --period-seconds 0.5 --scope shop=team=shop
    """
    values, deprecated = renamed_settings(values)
    try:
        check_installed()
    except UnknownPredicateError as error:
        raise CommandError(error.args[0]) from None
    try:
        settings = Settings(
            scopes=tuple(map(scope_from_text, scopes)),
            predicate_settings=predicate_settings_from_texts(sets),
            expected=expectations_from_texts(expects),
            **values,
        )
        check_settings(settings.predicate_settings)
    except SettingError as error:
        raise CommandError(str(error)) from None
    except (RefusedSettingError, UnknownPredicateError) as error:
        raise CommandError(f"--set: {error.args[0]}") from None
    settings.data.absolute()  # fails if it is relative to a directory that no longer exists: nothing could be kept
    configure(settings.log_format)
    mark_as_detectors()
    for was, name in deprecated.items():
        Log("stilltrue").warning("deprecated setting", used=flag(was), instead=flag(name))
    raise_limit(Log("stilltrue"))

    def started(listening: Listening) -> None:
        http = f"http://{listening.http}"
        line = f"listening grpc={listening.grpc} metrics={http}/metrics pages={http}/ data={settings.data}"
        announce(line, "listening", grpc=listening.grpc, http=listening.http, data=settings.data)

    try:
        asyncio.run(run_service(settings, started))
    except (
        AddressInUseError,
        DirectoryInUseError,
        RecordsUnavailableError,
        NewerStateError,
        NoClusterError,
        NotificationRefusedError,
        SecurityError,
    ) as error:
        raise CommandError(str(error)) from None
