"""Shell completion of names: predicates, programs, and a detector's scopes, processes, incidents and snapshots."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
import grpc
from click.shell_completion import CompletionItem

from detector.commands.shared.connection import DEFAULT_ADDRESS, Endpoint, detector_stub
from detector.commands.shared.run import CommandError
from stilltrue.runtime.membership.credentials import Security
from stilltrue.v1 import detector_pb2 as pb

SECONDS_MAX = 0.5
LISTED_MAX = 50

Found = list[CompletionItem]


def predicates(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The installed predicates."""
    from detector.core.registry import predicate_names  # noqa: PLC0415 - numpy takes a third of the time of a command

    return sorted(name for name in predicate_names() if name.startswith(incomplete))


def scopes(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The scopes in the newest snapshot's verdicts."""

    def ask(stub: Any) -> Iterable[str]:
        (newest,) = stub.ListSnapshots(pb.ListSnapshotsRequest(limit=1), timeout=SECONDS_MAX).snapshots or (None,)
        named = () if newest is None else newest.verdicts
        return {"all", *(name.partition("@")[2] or "all" for name in named)}

    return sorted(name for name in _ask_detector(context, ask, {"all"}) if name.startswith(incomplete))


def processes(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The connected processes."""

    def ask(stub: Any) -> Iterable[str]:
        found = stub.ListAgents(pb.ListAgentsRequest(), timeout=SECONDS_MAX).agents
        return [each.process.instance for each in found]

    return sorted(name for name in _ask_detector(context, ask, ()) if name.startswith(incomplete))


def lost_processes(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The processes that are lost."""

    def ask(stub: Any) -> Iterable[str]:
        found = stub.ListAgents(pb.ListAgentsRequest(), timeout=SECONDS_MAX).agents
        return [each.process.instance for each in found if each.state == pb.AGENT_STATE_LOST]

    return sorted(name for name in _ask_detector(context, ask, ()) if name.startswith(incomplete))


def open_incidents(context: click.Context, _parameter: click.Parameter, incomplete: str) -> Found:
    """The incidents that have not ended, each explained by its core."""
    return _incidents(context, incomplete, open_only=True)


def incidents(context: click.Context, _parameter: click.Parameter, incomplete: str) -> Found:
    """The newest incidents, each explained by its core."""
    return _incidents(context, incomplete, open_only=False)


def _incidents(context: click.Context, incomplete: str, *, open_only: bool) -> Found:
    def ask(stub: Any) -> Iterable[CompletionItem]:
        request = pb.ListIncidentsRequest(limit=LISTED_MAX, open_only=open_only)
        found = stub.ListIncidents(request, timeout=SECONDS_MAX).incidents
        return [CompletionItem(each.id, help=", ".join(each.core[:3])) for each in found]

    return [item for item in _ask_detector(context, ask, ()) if item.value.startswith(incomplete)]


def snapshots_and_incidents(context: click.Context, parameter: click.Parameter, incomplete: str) -> Found:
    """The arguments of ``show``: ``latest``, incidents, and the newest snapshots."""

    def ask(stub: Any) -> Iterable[CompletionItem]:
        found = stub.ListSnapshots(pb.ListSnapshotsRequest(limit=LISTED_MAX), timeout=SECONDS_MAX).snapshots
        return [CompletionItem(str(each.ref.id), help=each.outcome) for each in found]

    kept = [item for item in _ask_detector(context, ask, ()) if item.value.startswith(incomplete)]
    latest = [CompletionItem("latest", help="the newest snapshot")] if "latest".startswith(incomplete) else []
    return [*latest, *incidents(context, parameter, incomplete), *kept]


def programs_and_files(context: click.Context, _parameter: click.Parameter, incomplete: str) -> Found:
    """For the first word of a command, the programs on ``PATH``; for the others and for paths, whatever the shell offers."""
    if context.params.get("command") or os.sep in incomplete or not incomplete:
        return [CompletionItem(incomplete, type="file")]
    found: set[str] = set()
    for folder in os.get_exec_path():
        with contextlib.suppress(OSError):
            found.update(one.name for one in Path(folder).iterdir() if one.name.startswith(incomplete))
    return [CompletionItem(name) for name in sorted(found)[:LISTED_MAX]] or [CompletionItem(incomplete, type="file")]


def folders(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> Found:
    """The directories that the shell offers; a URI is typed out."""
    return [CompletionItem(incomplete, type="dir")]


def files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> Found:
    """The files that the shell offers."""
    return [CompletionItem(incomplete, type="file")]


def _ask_detector(context: click.Context, ask: Callable[[Any], Iterable[Any]], default: Iterable[Any]) -> Iterable[Any]:
    """Ask the detector; return ``default`` if none answers, since completion must not fail or hang."""
    given = context.params
    endpoint = Endpoint(
        address=given.get("address") or DEFAULT_ADDRESS,
        security=Security(
            ca=given.get("ca") or "",
            certificate=given.get("certificate") or "",
            key=given.get("key") or "",
            token_file=given.get("token_file") or "",
        ),
    )
    with contextlib.suppress(CommandError, grpc.RpcError), detector_stub(endpoint) as stub:
        return ask(stub)
    return default
