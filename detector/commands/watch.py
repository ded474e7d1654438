"""``stilltrue watch``: prints verdicts as they change, and notices when the detector goes silent."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import click
import grpc
from rich.markup import escape

from detector.commands.shared.connection import Endpoint, detector_option, detector_stub, json_option
from detector.commands.shared.render import console, holds_text, listed, print_json, styled
from detector.commands.shared.run import CommandError
from detector.core.times import local_time
from detector.core.verdict import write_verdict
from stilltrue.model import Verdict
from stilltrue.protocol.wire import verdict_from_wire
from stilltrue.v1 import detector_pb2 as pb

_LOOK_SECONDS = 0.25


class _Patience:
    """Cancels a call that has said nothing for ``seconds``, news or sign of life."""

    def __init__(self, call: grpc.Call, seconds: float) -> None:
        self.lost = False
        self._call = call
        self._seconds = seconds
        self._heard = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def heard(self) -> None:
        self._heard = time.monotonic()

    def _watch(self) -> None:
        while self._call.is_active():
            if time.monotonic() - self._heard > self._seconds:
                self.lost = True
                self._call.cancel()
            time.sleep(_LOOK_SECONDS)


@click.command(short_help="Print verdicts as they change.")
@click.argument("predicate", default="")
@click.option("--scope", default="", help="Only this group of processes; all groups when not given.", show_envvar=True)
@click.option(
    "--silence-seconds-max", type=click.FloatRange(min=1), default=20.0, show_default=True, show_envvar=True,
    help="End when the detector gives no sign of life for so long.",
)  # fmt: skip
@detector_option
@json_option
def watch(predicate: str, scope: str, silence_seconds_max: float, endpoint: Endpoint, *, as_json: bool) -> None:
    """Print the verdict on PREDICATE (on each, when not given) as it stands, then whenever it differs. Ends with ctrl-C.

    \b
    Example:
      stilltrue watch deadlock --json | jq .core
    """
    with detector_stub(endpoint) as stub:
        call: Any = stub.Watch(pb.WatchRequest(predicate=predicate, scope=scope), wait_for_ready=False)
        patience = _Patience(call, silence_seconds_max)
        try:
            for verdict in _verdicts(call, patience):
                if as_json:
                    print_json(write_verdict(verdict))
                else:
                    _print(verdict)
                sys.stdout.flush()
        except grpc.RpcError:
            if patience.lost:
                text = f"the detector at {endpoint.address} has given no sign of life for {silence_seconds_max:g} s"
                raise CommandError(text) from None
            raise
        finally:
            call.cancel()


def _verdicts(call: Any, patience: _Patience) -> Iterator[Verdict]:
    for response in call:
        patience.heard()
        if response.HasField("verdict"):
            yield verdict_from_wire(response.verdict)


def _print(verdict: Verdict) -> None:
    """One line for each verdict, and the core below it."""
    out = console()
    scope = "" if verdict.snapshot.scope == "all" else f"@{verdict.snapshot.scope}"
    answer = styled(verdict.holds, verdict.predicate, holds_text(verdict))
    text = escape(verdict.witness.text)
    out.print(f"[dim]{local_time(verdict.snapshot.ended)}[/] {escape(verdict.predicate + scope)}: {answer}  {text}")
    if verdict.core:
        out.print(f"  core: {escape(listed(verdict.core))}")
