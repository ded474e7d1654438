"""Reads gRPC core's data about its own connections (channelz).

It is read on the agent's own thread, never on the path of a call. Data that cannot be read, has an unknown form or exceeds a
bound is None and left out: a call that no member has seen then stays unlocated.
"""

from __future__ import annotations

import base64
import functools
import ipaddress
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

from grpc._cython import cygrpc

from stilltrue.protocol.report import Connection

ENTRIES_MAX = 300
SOCKETS_MAX = 300
PAGE_LENGTH = 100
_NAMESPACE = Path("/proc/self/ns/net")
_BOOT = Path("/proc/sys/kernel/random/boot_id")

Json = dict[str, Any]
Read = TypeVar("Read")
Targets = dict[str, tuple[Connection, ...] | None]
"""By target: all connections that a call to it can be on; None if there may be, or have been, another one."""
Servers = dict[int, dict[str, Connection]]
"""By server: its connections, by remote address."""


@functools.cache
def namespace() -> str | None:
    """The network namespace of this process, within which a connection's two addresses identify it. None: unknown."""
    try:
        return f"{_BOOT.read_text().strip()}:{_NAMESPACE.stat().st_ino}"
    except OSError:
        return None


os.register_at_fork(after_in_child=namespace.cache_clear)


class CachedRead(Generic[Read]):
    """Data whose last reading is cached for a short time, for all agents of the process."""

    def __init__(self, read: Callable[[], Read]) -> None:
        """``read`` returns the data, or raises."""
        self._read = read
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._known: Read | None = None
        self._read_at = -math.inf

    def read(self, age_seconds_max: float = 0.0) -> Read | None:
        """The data, at most ``age_seconds_max`` old; None: unknown."""
        if namespace() is None:
            return None
        with self._lock:
            begun = time.monotonic()
            if begun - self._read_at > age_seconds_max:
                try:
                    self._known = self._read()
                except Exception:  # noqa: BLE001 - an unknown form
                    self._known = None
                self._read_at = begun
            return self._known


# -- this process's channels -------------------------------------------------------------------------------------------


def _targets() -> Targets:
    found: dict[str, dict[str, Connection] | None] = {}
    for channel in _pages(cygrpc.channelz_get_top_channels, "channel", "channelId", ENTRIES_MAX):
        data = channel["data"]
        if not _open_calls(data):
            continue
        known, own = found.setdefault(str(data["target"]), {}), _connections(channel)
        if own is None or known is None:
            found[str(data["target"])] = None
        else:
            known.update(own)
    return {target: tuple(known[name] for name in sorted(known)) if known else None for target, known in found.items()}


def _open_calls(data: Json) -> int:
    return int(data.get("callsStarted", 0)) - int(data.get("callsSucceeded", 0)) - int(data.get("callsFailed", 0))


def _connections(channel: Json) -> dict[str, Connection] | None:
    """The connections of a channel that has connected only once in its life, by name; None for any other channel."""
    data = channel["data"]
    if not was_connected_once(data, "Channel created") or channel.get("channelRef"):
        return None
    if int(data.get("maxConnectionsPerSubchannel") or 0) > 1:  # a call that waits for room may get a new connection
        return None
    found: dict[str, Connection] = {}
    for reference in channel.get("subchannelRef", ()):
        subchannel = json.loads(cygrpc.channelz_get_subchannel(int(reference["subchannelId"])))["subchannel"]
        if not was_connected_once(subchannel["data"], "subchannel created") or subchannel.get("subchannelRef"):
            return None
        (socket,) = subchannel["socketRef"]
        end = _socket(int(socket["socketId"]))
        if end is None:
            return None
        found[end[1].name] = end[1]
    return found


def was_connected_once(data: Json, first: str) -> bool:
    """Whether its trace is complete and shows that it became ready once and stayed ready: none of its calls is elsewhere."""
    trace = data.get("trace") or {}
    events = [str(event["description"]) for event in trace.get("events", ())]
    if (data.get("state") or {}).get("state") != "READY" or not events or events[0] != first:
        return False
    if int(trace.get("numEventsLogged") or 0) > len(events):  # newer versions lack this count
        return False
    ready = next((at for at, event in enumerate(events) if _is_ready(event)), None)
    return ready is not None and all(map(_is_ready, events[ready:]))


def _is_ready(event: str) -> bool:
    return event.endswith(" READY") and "state change" in event


# -- this process's servers --------------------------------------------------------------------------------------------


def _servers() -> Servers:
    entries = _pages(cygrpc.channelz_get_servers, "server", "serverId", ENTRIES_MAX)
    numbers = [int(server["ref"]["serverId"]) for server in entries]
    return {number: _server(number) for number in numbers}


def _server(number: int) -> dict[str, Connection]:
    found: dict[str, Connection] = {}
    for reference in _pages(functools.partial(_server_sockets, number), "socketRef", "socketId", SOCKETS_MAX):
        end = _socket(int(reference["socketId"]), served=True)
        if end is not None:
            found[end[0]] = end[1]
    return found


def _server_sockets(number: int, start: int) -> bytes:
    found: bytes = cygrpc.channelz_get_server_sockets(number, start, PAGE_LENGTH)
    return found


def _pages(get: Callable[[int], bytes], kind: str, key: str, entries_max: int) -> Iterator[Json]:
    """All entries of one kind. Raises :class:`OverflowError` if there are more than ``entries_max``."""
    start, count = 0, 0
    while True:
        page = json.loads(get(start))
        entries = page.get(kind, [])
        count += len(entries)
        if count > entries_max:
            raise OverflowError(kind)
        yield from entries
        if page.get("end") or not entries:
            return
        start = int(entries[-1].get("ref", entries[-1])[key]) + 1


def _socket(number: int, *, served: bool = False) -> tuple[str, Connection] | None:
    """The remote address and the connection; None if it is not a TCP connection."""
    socket = json.loads(cygrpc.channelz_get_socket(number))["socket"]
    local, remote = _address(socket.get("local")), _address(socket.get("remote"))
    if local is None or remote is None:
        return None
    data = socket.get("data", {})
    ended = int(data.get("streamsSucceeded", 0)) + int(data.get("streamsFailed", 0))
    dialled, accepted = (remote, local) if served else (local, remote)
    name = f"{namespace()}:{dialled}>{accepted}"
    return remote, Connection(name=name, socket=number, begun=int(data.get("streamsStarted", 0)), ended=ended)


def _address(end: Json | None) -> str | None:
    known = (end or {}).get("tcpipAddress") or (end or {}).get("tcpip_address")  # depends on the version
    if not known or not int(known.get("port") or 0):
        return None
    plain = known.get("ipAddress") or known.get("ip_address") or ""
    return address_text(ipaddress.ip_address(base64.b64decode(plain)), int(known["port"]))


def peer_address(peer: str) -> str | None:
    """A call's remote address as gRPC gives it (``ipv4:127.0.0.1:5``); None if it is not a TCP address."""
    family, _, rest = unquote(peer).partition(":")
    if family not in {"ipv4", "ipv6"}:
        return None
    host, _, port = rest.rpartition(":")
    try:
        return address_text(ipaddress.ip_address(host.strip("[]")), int(port))
    except ValueError:
        return None


def address_text(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    """An address in canonical form: IPv4 addresses mapped to IPv6 become IPv4."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return f"[{address}]:{port}"
    return f"{address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else address}:{port}"


TARGETS = CachedRead(_targets)
SERVERS = CachedRead(_servers)
