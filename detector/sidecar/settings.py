"""The settings of a sidecar, validated on creation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from detector.ops.address import Address
from detector.sidecar.routing import Upstreams
from detector.sidecar.tls import TlsFiles

WORKERS_MAX = 1_000_000
EVERY_HOST = ("0.0.0.0", "::")
_NO_AGENT: Mapping[str, object] = {}


class SettingError(ValueError):
    """A setting is invalid; the message is one line that names the flag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarSettings:
    """The addresses of the ``program``, of the sidecar for calls to it (``inbound``) and by it (``outbound``), and the rest.

    ``workers``: the number of calls that the program serves at once (None: unknown). ``needs_all``: a handler with several
    outstanding calls waits for all of them. ``never_awaited``: methods that handlers do not wait for. ``call_seconds_max``: the
    program ends each call after this time (None: it does not). ``agent``: settings of the embedded agent.
    ``drain_seconds_max``: time limit for calls in progress at shutdown.
    """

    program: Address
    inbound: Address
    outbound: Address
    admin: Address
    upstreams: Upstreams
    workers: int | None = None
    needs_all: bool = False
    never_awaited: tuple[str, ...] = ()
    call_seconds_max: float | None = None
    tells_party: bool = True
    inbound_tls: TlsFiles | None = None
    upstream_tls: TlsFiles | None = None
    drain_seconds_max: float = 25.0
    agent: Mapping[str, object] = field(default_factory=lambda: dict(_NO_AGENT))

    def __post_init__(self) -> None:
        """Validate the settings."""
        if self.workers is not None and not 1 <= self.workers <= WORKERS_MAX:
            raise SettingError(f"--workers: must be between 1 and {WORKERS_MAX}, not {self.workers}")
        if not self.outbound.loopback:
            raise SettingError(f"--outbound: {self.outbound} is not loopback: others could call in the program's name")
        everywhere = self.inbound.host in EVERY_HOST and self.program.loopback
        if self.program.port == self.inbound.port != 0 and (everywhere or self.program.host == self.inbound.host):
            raise SettingError(f"--inbound: {self.inbound} is the program's own address (--app {self.program})")
        for method in self.never_awaited:
            if not method.startswith("/") or method.count("/") != 2:
                raise SettingError(f"--never-awaited: {method!r} is not a valid /package.Service/Method")
