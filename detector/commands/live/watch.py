"""``stilltrue watch``: prints verdicts as they change; waits for a detector to (re)start.

It exits if the detector falls silent, or if nobody reads its output any more (``watch deadlock | grep -m1 TRUE``).
"""

from __future__ import annotations

import io
import select
import sys
import threading
import time
from typing import Any

import click
import grpc

from detector.commands.options import completed_names as names
from detector.commands.options.finite_range import FiniteRange
from detector.commands.shared.connection import (
    Endpoint,
    detector_option,
    detector_stub,
    failure,
    handshake_failure,
    listens,
    unavailable_reason,
)
from detector.commands.shared.output import Output, output_option, print_data, print_names
from detector.commands.shared.render import console, escape, holds_text, listed, print_indented, styled
from detector.commands.shared.run import CommandError
from detector.core.times import local_time
from detector.core.verdict import write_verdict
from stilltrue.model import Holds, PartyName, Verdict
from stilltrue.protocol.wire.verdict import verdict_from_wire
from stilltrue.v1 import detector_pb2 as pb

_POLL_SECONDS = 0.25
_NOTICE_SECONDS = 2.0
"""After this long without a detector, ``watch`` reports on standard error that it is waiting for one."""


def _is_unread() -> bool:
    """Whether the reader of standard output has ended: writing would fail, but there may be nothing to write for hours."""
    try:
        number = sys.stdout.fileno()
    except (io.UnsupportedOperation, ValueError):
        return False
    if not hasattr(select, "poll"):
        return False
    poller = select.poll()
    poller.register(number, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poller.poll(0))


class _SilenceTimeout:
    """Cancels a call if its next response, or heartbeat, takes longer than ``seconds``, or if nobody reads the output."""

    def __init__(self, call: grpc.Call, seconds: float) -> None:
        self.answered = False
        self.expired = False
        self.unread = False
        self._call = call
        self._seconds = seconds
        self._last_seen = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def response(self) -> None:
        self.answered = True
        self._last_seen = time.monotonic()

    def _watch(self) -> None:
        while self._call.is_active():
            if time.monotonic() - self._last_seen > self._seconds:
                self.expired = True
                self._call.cancel()
            elif _is_unread():
                self.unread = True
                self._call.cancel()
            time.sleep(_POLL_SECONDS)


class _Shown:
    """Prints verdicts, but none whose answer and core are those printed last: a detector that is back repeats its verdicts."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._last: dict[tuple[str, str], tuple[Holds, tuple[PartyName, ...]]] = {}

    def show(self, verdict: Verdict) -> None:
        key, said = (verdict.predicate, verdict.snapshot.scope), (verdict.holds, verdict.core)
        if self._last.get(key) != said:
            self._last[key] = said
            _write(verdict, self._output)
            sys.stdout.flush()


class _Connection:
    """One connection to a detector, followed until it is lost."""

    def __init__(self, endpoint: Endpoint, request: pb.WatchRequest, silence_seconds_max: float) -> None:
        self.answered = False
        self.reached = False
        """Whether a detector was connected, though it may not have answered yet."""
        self.reason = "it ended the watch"
        """Why the connection was lost, in few words."""
        self._endpoint = endpoint
        self._request = request
        self._silence_seconds_max = silence_seconds_max

    def follow(self, shown: _Shown) -> CommandError:
        """Print the verdicts; return the error to report if the detector does not come back.

        Raises :class:`CommandError` if the detector falls silent, or refuses; ``BrokenPipeError`` if nobody reads the output.
        """
        with detector_stub(self._endpoint) as stub:
            call: Any = stub.Watch(self._request)
            timeout = _SilenceTimeout(call, self._silence_seconds_max)
            try:
                for response in call:
                    timeout.response()
                    self.answered = True
                    if response.HasField("verdict"):
                        shown.show(verdict_from_wire(response.verdict))
            except grpc.RpcError as error:
                if timeout.unread:
                    raise BrokenPipeError from None
                if timeout.expired:
                    raise self._silent(timeout) from None
                if not isinstance(error, grpc.Call) or error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                self.reached = not (error.details() or "").startswith("failed to connect")
                self.reason = unavailable_reason(error)
                return failure(error, self._endpoint.address)
            finally:
                call.cancel()
        return CommandError(f"the detector at {self._endpoint.address} has ended the watch")

    def _silent(self, timeout: _SilenceTimeout) -> CommandError:
        address = self._endpoint.address
        if not timeout.answered:
            return handshake_failure(address)
        return CommandError(f"no heartbeat from the detector at {address} for {self._silence_seconds_max:g} s")


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
    help="How long to wait for a detector to start or to come back; 0: not at all.",
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
    request = pb.WatchRequest(predicate=predicate, scope=scope)
    shown, was_there, gone_at = _Shown(output), False, time.monotonic()
    while True:
        _wait_for_listener(endpoint, gone_at, wait_seconds_max, was_there=was_there)
        connection = _Connection(endpoint, request, silence_seconds_max)
        error = connection.follow(shown)
        if connection.answered or (connection.reached and not was_there):
            was_there, gone_at = True, time.monotonic()
            if wait_seconds_max:
                gone = f"the detector at {endpoint.address} is gone ({connection.reason})"
                click.echo(f"{gone}; waiting for it to come back ...", err=True)
        if not was_there or time.monotonic() - gone_at >= wait_seconds_max:
            raise error
        time.sleep(_POLL_SECONDS)


def _wait_for_listener(endpoint: Endpoint, gone_at: float, wait_seconds_max: float, *, was_there: bool) -> None:
    """Wait until something listens at the address. Raises :class:`CommandError` ``wait_seconds_max`` after ``gone_at``."""
    told = was_there
    while wait_seconds_max and not listens(endpoint.address):
        if _is_unread():
            raise BrokenPipeError
        absent = time.monotonic() - gone_at
        if absent >= wait_seconds_max:
            text = f"no detector at {endpoint.address} after {wait_seconds_max:g} s"
            raise CommandError(f"{text}; start one with 'stilltrue serve', or name it with --detector")
        if absent > _NOTICE_SECONDS and not told:
            click.echo(f"waiting for a detector at {endpoint.address} ...", err=True)
            told = True
        time.sleep(_POLL_SECONDS)


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
