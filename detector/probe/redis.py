"""Reads the locks of a Redis server: keys with certain names, their values and times to live."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import redis

from detector.probe.reading import Reading, ServerDownError, UnusableServerError
from detector.probe.redis_waits import Address, Key, Keys
from stilltrue.runtime.transport.channelz import namespace

CONNECT_SECONDS_MAX = 3.0
ANSWER_SECONDS_MAX = 1.5
KEYS_MAX = 500
"""Maximum number of locks per reading; parties that wait for other locks count as able to go on."""
SCANNED_AT_ONCE, SCANS_MAX = 1_000, 20
"""Number of keys per SCAN, and maximum number of SCANs per reading."""
TOKEN_BYTES_MAX = 128
"""Longer values are not tokens, and are not read."""
ADDRESSES_MAX = 16
PATTERN = "*lock*"


class RedisLocks:
    """The locks in one database of a server; connects on demand."""

    def __init__(self, url: str, process: str, patterns: Sequence[str] = (PATTERN,)) -> None:
        """``url``: for redis-py; ``process``: the probe's name; ``patterns``: the names of the locks.

        Raises :class:`UnusableServerError`. Does not connect yet.
        """
        try:
            self._client = redis.Redis.from_url(
                url,
                socket_connect_timeout=CONNECT_SECONDS_MAX,
                socket_timeout=ANSWER_SECONDS_MAX,
                client_name="stilltrue-probe",
                decode_responses=False,
                single_connection_client=False,
            )
        except ValueError as error:
            raise UnusableServerError(str(error)) from None
        self._patterns = tuple(patterns)
        options = self._client.connection_pool.connection_kwargs
        self._keys = Keys(process, int(options.get("db") or 0))
        self.blind: tuple[str, ...] = ()
        """Descriptions of what it cannot see."""

    def reading(self, now: float) -> Reading:
        """Read the locks and their holders ``now`` (epoch). Raises :class:`ServerDownError`."""
        try:
            names = list(dict.fromkeys(islice(self._names(), KEYS_MAX)))
            addresses, network = self._addresses()
            return self._keys.read(self._read(names), addresses, network, now)
        except (redis.RedisError, OSError) as error:
            self.close()
            raise ServerDownError((str(error).splitlines() or [type(error).__name__])[0]) from None

    def close(self) -> None:
        """Close the connections; the next reading opens new ones."""
        self._client.close()
        self._client.connection_pool.disconnect()

    def _names(self) -> Iterator[bytes]:
        """Find the names of keys that may be locks."""
        self.blind = ()
        for pattern in self._patterns:
            if not any(sign in pattern for sign in "*?[\\"):
                yield pattern.encode()
                continue
            cursor, scans = 0, 0
            while scans < SCANS_MAX:
                found: tuple[int, list[bytes]] = self._client.scan(cursor, match=pattern, count=SCANNED_AT_ONCE, _type="string")  # type: ignore[assignment]  # no text is decoded
                cursor = found[0]
                yield from found[1]
                scans += 1
                if not cursor:
                    break
            else:
                self.blind = (f"the database has too many keys to search for {pattern}: name each lock (--lock)",)

    def _read(self, names: Iterable[bytes]) -> Iterator[Key]:
        """Read the keys that exist, each atomically."""
        for name in names:
            with self._client.pipeline(transaction=True) as pipeline:
                pipeline.strlen(name)
                pipeline.getrange(name, 0, TOKEN_BYTES_MAX - 1)
                pipeline.pttl(name)
                length, token, left = pipeline.execute(raise_on_error=False)
            if type(length) is int and 0 < length <= TOKEN_BYTES_MAX and type(left) is int and left != _GONE:
                yield Key(name=name, token=token, seconds_left=None if left < 0 else left / 1_000)

    def _addresses(self) -> tuple[tuple[Address, ...], str | None]:
        """The server's addresses as its clients see them, and its network if it is our own."""
        connection = self._client.connection_pool.get_connection()
        try:
            connected: Any = connection._sock  # noqa: SLF001 - redis-py has no public access
            own = connected.getpeername()
        finally:
            self._client.connection_pool.release(connection)
        found = {Address(host=str(own[0]), port=int(own[1])): None}
        for client in self._clients():
            host, _, port = str(client.get("laddr", "")).rpartition(":")
            if port.isdigit() and len(found) < ADDRESSES_MAX:
                found[Address(host=host.strip("[]"), port=int(port))] = None
        return tuple(found), namespace() if ipaddress.ip_address(own[0]).is_loopback else None

    def _clients(self) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = self._client.client_list(_type="normal")
        except redis.ResponseError:  # not permitted: then only clients that use the same address as we do are found
            return []
        return found


_GONE = -2
