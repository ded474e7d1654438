"""Names that a shell completes: predicates that are installed, and scopes, incidents and snapshots that a detector knows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import click
import grpc
from click.shell_completion import CompletionItem

from detector.commands.shared.connection import DEFAULT_ADDRESS, Endpoint, detector_stub
from detector.commands.shared.run import CommandError
from detector.core.registry import predicate_names
from stilltrue.runtime.membership.credentials import Security
from stilltrue.v1 import detector_pb2 as pb

SECONDS_MAX = 0.5
LISTED_MAX = 50

Found = list[CompletionItem]


def predicates(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """The installed predicates."""
    return sorted(name for name in predicate_names() if name.startswith(begun))


def scopes(context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """The scopes that verdicts have been given for."""

    def ask(stub: Any) -> Iterable[str]:
        (newest,) = stub.ListSnapshots(pb.ListSnapshotsRequest(limit=1), timeout=SECONDS_MAX).snapshots or (None,)
        named = () if newest is None else newest.verdicts
        return {"all", *(name.partition("@")[2] or "all" for name in named)}

    return sorted(name for name in _asked(context, ask, {"all"}) if name.startswith(begun))


def processes(context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """The members."""

    def ask(stub: Any) -> Iterable[str]:
        found = stub.ListAgents(pb.ListAgentsRequest(), timeout=SECONDS_MAX).agents
        return [each.process.instance for each in found]

    return sorted(name for name in _asked(context, ask, ()) if name.startswith(begun))


def incidents(context: click.Context, _parameter: click.Parameter, begun: str) -> Found:
    """The newest incidents, each with its core as its explanation."""

    def ask(stub: Any) -> Iterable[CompletionItem]:
        found = stub.ListIncidents(pb.ListIncidentsRequest(limit=LISTED_MAX), timeout=SECONDS_MAX).incidents
        return [CompletionItem(each.id, help=", ".join(each.core[:3])) for each in found]

    return [item for item in _asked(context, ask, ()) if item.value.startswith(begun)]


def shown(context: click.Context, parameter: click.Parameter, begun: str) -> Found:
    """What ``show`` shows: the newest snapshot, those that are kept, and incidents."""

    def ask(stub: Any) -> Iterable[CompletionItem]:
        found = stub.ListSnapshots(pb.ListSnapshotsRequest(limit=LISTED_MAX), timeout=SECONDS_MAX).snapshots
        return [CompletionItem(str(each.ref.id), help=each.outcome) for each in found]

    kept = [item for item in _asked(context, ask, ()) if item.value.startswith(begun)]
    latest = [CompletionItem("latest", help="the newest snapshot")] if "latest".startswith(begun) else []
    return [*latest, *incidents(context, parameter, begun), *kept]


def _asked(context: click.Context, ask: Callable[[Any], Iterable[Any]], otherwise: Iterable[Any]) -> Iterable[Any]:
    """What a detector answers; ``otherwise`` when there is none, since a completion must not fail or hang."""
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
    return otherwise
