"""``stilltrue watch``: prints verdicts as they change; waits for a detector to start, and exits if it falls silent."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click
import grpc

from detector.commands.shared import names
from detector.commands.shared.connection import Endpoint, detector_option, detector_stub, handshake_failure, listens
from detector.commands.shared.finite_range import FiniteRange
from detector.commands.shared.output import Output, output_option, print_data, print_names
from detector.commands.shared.render import console, escape, holds_text, listed, print_indented, styled
from detector.commands.shared.run import CommandError
from detector.core.times import local_time
from detector.core.verdict import write_verdict
from stilltrue.model import Verdict
from stilltrue.protocol.wire.verdict import verdict_from_wire
from stilltrue.v1 import detector_pb2 as pb

_POLL_SECONDS = 0.25
_NOTICE_SECONDS = 2.0
"""After this long without a detector, ``watch`` reports on standard error that it is waiting for one."""


class _SilenceTimeout:
    """Cancels a call whose first response takes longer than ``first_seconds``, or a later one longer than ``silence_seconds``.

    Heartbeats count as responses. ``waiting`` is called once if there is no response within ``_NOTICE_SECONDS``.
    """

    def __init__(self, call: grpc.Call, first_seconds: float, silence_seconds: float, waiting: Callable[[], None]) -> None:
        self.answered = False
        self.expired = False
        self._call = call
        self._seconds = first_seconds
        self._silence_seconds = silence_seconds
        self._waiting: Callable[[], None] | None = waiting
        self._last_seen = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def response(self) -> None:
        self.answered = True
        self._seconds = self._silence_seconds
        self._last_seen = time.monotonic()

    def _watch(self) -> None:
        while self._call.is_active():
            silent = time.monotonic() - self._last_seen
            if self._waiting is not None and not self.answered and silent > _NOTICE_SECONDS:
                self._waiting()
                self._waiting = None
            if silent > self._seconds:
                self.expired = True
                self._call.cancel()
            time.sleep(_POLL_SECONDS)


@click.command(short_help="Print verdicts as they change.")
@click.argument("predicate", default="", shell_complete=names.predicates)
@click.option(
    "--scope", default="", shell_complete=names.scopes, help="Only this scope (group of processes).  [default: all scopes]"
)
@click.option(
    "--silence-seconds-max", type=FiniteRange(min=1), default=20.0, show_default=True, show_envvar=True,
    help="Exit if no heartbeat arrives within this time.",
)  # fmt: skip
@click.option(
    "--wait-seconds-max", type=FiniteRange(min=0), default=30.0, show_default=True, show_envvar=True,
    help="How long to wait for a detector to start.",
)  # fmt: skip
@detector_option
@output_option
def watch(
    predicate: str, scope: str, silence_seconds_max: float, wait_seconds_max: float, endpoint: Endpoint, output: Output
) -> None:
    """Print the current verdict on PREDICATE (default: on all), then every change, until Ctrl-C.

    \b
    Example:
      stilltrue watch deadlock --json | jq .core
    """
    with detector_stub(endpoint) as stub:
        call: Any = stub.Watch(pb.WatchRequest(predicate=predicate, scope=scope), wait_for_ready=wait_seconds_max > 0)
        timeout = _SilenceTimeout(
            call, wait_seconds_max or silence_seconds_max, silence_seconds_max, partial(_say_waiting, endpoint)
        )
        try:
            for verdict in _verdicts(call, timeout):
                _write(verdict, output)
                sys.stdout.flush()
        except grpc.RpcError:
            if not timeout.expired:
                raise
            if not timeout.answered:
                if listens(endpoint.address):
                    raise handshake_failure(endpoint.address) from None
                text = f"no detector at {endpoint.address} after {wait_seconds_max or silence_seconds_max:g} s"
                raise CommandError(f"{text}; start one with 'stilltrue serve', or name it with --detector") from None
            raise CommandError(f"no heartbeat from the detector at {endpoint.address} for {silence_seconds_max:g} s") from None
        finally:
            call.cancel()


def _verdicts(call: Any, timeout: _SilenceTimeout) -> Iterator[Verdict]:
    for response in call:
        timeout.response()
        if response.HasField("verdict"):
            yield verdict_from_wire(response.verdict)


def _say_waiting(endpoint: Endpoint) -> None:
    click.echo(f"waiting for a detector at {endpoint.address} ...", err=True)


def _write(verdict: Verdict, output: Output) -> None:
    if output is Output.YAML:
        click.echo("---")
    if output is Output.NAME:
        print_names([f"{verdict.predicate}@{verdict.snapshot.scope}"])
    elif not print_data(write_verdict(verdict), output):
        _print(verdict)


def _print(verdict: Verdict) -> None:
    """Print the verdict on one line, which a terminal wraps, and its core on the next."""
    out = console()
    scope = "" if verdict.snapshot.scope == "all" else f"@{verdict.snapshot.scope}"
    answer = styled(verdict.holds, verdict.predicate, holds_text(verdict))
    text = escape(verdict.witness.text)
    head = f"[dim]{local_time(verdict.snapshot.ended)}[/] {escape(verdict.predicate + scope)}"
    print_indented(out, f"{head}: {answer}  {text}", indent=0)
    if verdict.core:
        print_indented(out, f"core: {escape(listed(verdict.core))}")
