"""Reads the views of a PostgreSQL server over one read-only connection, with one short statement per reading."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from detector.probe.postgres_waits import Backend, Backends, seconds
from detector.probe.reading import Reading, ServerDownError, UnusableServerError
from stilltrue.runtime.transport.channelz import namespace
from stilltrue.runtime.waits.databases.drivers import TIMEOUTS

CONNECT_SECONDS_MAX = 3
STATEMENT_MS_MAX = 500
ANSWER_SECONDS_MAX = 1.5
"""Time limit for an answer, after which the connection is cut."""
VERSION_MIN = 140_000
"""The first version that reports since when a process has waited for a lock."""
WAITERS_MAX = 200
"""Maximum number of waiting processes per reading; the others count as able to go on."""

_READING = f"""
WITH waiting AS MATERIALIZED (
    SELECT pid, pg_blocking_pids(pid) AS blockers
    FROM (SELECT DISTINCT pid FROM pg_locks WHERE NOT granted LIMIT {WAITERS_MAX}) AS few
), concerned AS (
    SELECT pid FROM waiting WHERE cardinality(blockers) > 0 UNION SELECT unnest(blockers) FROM waiting
)
SELECT
    a.pid, a.backend_start::text AS started, a.state, a.state_change::text AS state_changed,
    extract(epoch FROM clock_timestamp() - a.state_change)::float8 AS state_age,
    extract(epoch FROM clock_timestamp() - a.query_start)::float8 AS statement_age,
    extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS transaction_age,
    l.waitstart::text AS waiting_since, extract(epoch FROM clock_timestamp() - l.waitstart)::float8 AS waiting_age,
    l.mode, l.locktype, l.relation::regclass::text AS relation,
    CASE WHEN a.wait_event_type = 'Lock' THEN w.blockers END AS blockers,
    host(a.client_addr) AS address, a.client_port AS port, a.query ~* '_timeout' AS names_timeout,
    a.backend_type = 'client backend' AND a.datid = me.oid AND a.state IS NOT NULL AS ours,
    (SELECT json_object_agg(name, reset_val) FROM pg_settings WHERE name = ANY(%(names)s)) AS defaults,
    (SELECT json_agg(json_build_array(s.setdatabase <> 0, s.setrole <> 0, s.setconfig)) FROM pg_db_role_setting s
     WHERE s.setdatabase IN (0, a.datid) AND s.setrole IN (0, a.usesysid)) AS of_role,
    (SELECT json_agg(s.setconfig) FROM pg_db_role_setting s
     WHERE s.setdatabase IN (0, me.oid) AND s.setrole IN (0, my.oid)) AS of_probe,
    EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace <> 'pg_catalog'::regnamespace
            AND (p.prosrc ~* '_timeout' OR array_to_string(p.proconfig, ' ') ~* '_timeout')) AS functions_name_timeout
FROM concerned JOIN pg_stat_activity a USING (pid)
    CROSS JOIN (SELECT oid FROM pg_database WHERE datname = current_database()) AS me
    CROSS JOIN (SELECT oid FROM pg_roles WHERE rolname = session_user) AS my
    LEFT JOIN waiting w USING (pid)
    LEFT JOIN LATERAL (SELECT * FROM pg_locks o WHERE o.pid = a.pid AND NOT o.granted LIMIT 1) AS l ON true
"""
_ABOUT_US = """
SELECT host(inet_client_addr()) AS address, inet_client_port() AS port,
    current_setting('is_superuser') = 'on' OR pg_has_role('pg_read_all_stats', 'USAGE') AS sees_all, session_user AS role
"""


class Database:
    """One database of a server; connects on demand."""

    def __init__(self, dsn: str, process: str) -> None:
        """``dsn``: a libpq connection string; ``process``: the probe's name. Does not connect yet.

        Raises :class:`UnusableServerError` if ``dsn`` is no such string.
        """
        try:
            conninfo_to_dict(dsn)
        except psycopg.ProgrammingError as error:
            text = f"DSN: {_first_line(error)}; for example postgresql://stilltrue@db.shop:5432/orders"
            raise UnusableServerError(text) from None
        self._dsn = dsn
        self._backends = Backends(process, None)
        self._connection: psycopg.Connection[dict[str, Any]] | None = None
        self.blind: tuple[str, ...] = ()
        """Descriptions of what it cannot see."""

    def reading(self, now: float) -> Reading:
        """Read the sessions' waits ``now`` (epoch). Raises :class:`ServerDownError`, :class:`UnusableServerError`."""
        return self._backends.read(self._rows(), now)

    def _rows(self) -> list[Backend]:
        """Read the processes that wait for locks, and those that block them."""
        try:
            connection = self._connected()
            with _cut_off_when_late(connection):
                rows = connection.execute(_READING, {"names": list(TIMEOUTS)}).fetchall()
        except psycopg.Error as error:
            self.close()
            raise ServerDownError(_first_line(error)) from None
        return [_backend(row) for row in rows]

    def close(self) -> None:
        """Close the connection; the next reading opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> psycopg.Connection[dict[str, Any]]:
        if self._connection is None:
            self._connection = connection = psycopg.connect(
                self._dsn,
                autocommit=True,
                connect_timeout=CONNECT_SECONDS_MAX,
                application_name="stilltrue-probe",
                row_factory=dict_row,
                prepare_threshold=None,
                options="",
            )
            if connection.info.server_version < VERSION_MIN:
                self.close()
                raise UnusableServerError(
                    "PostgreSQL 14 or newer is needed: older versions do not report since when a process waits for a lock"
                )
            connection.execute(f"SET statement_timeout = {STATEMENT_MS_MAX}")
            connection.execute("SET default_transaction_read_only = on")
            self._learn(connection)
        return self._connection

    def _learn(self, connection: psycopg.Connection[dict[str, Any]]) -> None:
        """Learn whether we see all sessions, and whether the server is in our network (it sees our own address)."""
        about = connection.execute(_ABOUT_US).fetchone()
        assert about is not None
        hidden = f"the role {about['role']} lacks pg_read_all_stats (GRANT pg_monitor): it cannot see other roles' sessions"
        self.blind = () if about["sees_all"] else (hidden,)
        with socket.socket(fileno=os.dup(connection.pgconn.socket)) as same:
            is_direct = same.getsockname()[:2] == (about["address"], about["port"])
        self._backends.network = namespace() if is_direct else None


class _cut_off_when_late:  # noqa: N801 - reads as a block
    """Cuts the connection if the server, which may be stopped or unreachable, does not answer within the block in time."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._socket = socket.socket(fileno=os.dup(connection.pgconn.socket))
        self._timer = threading.Timer(ANSWER_SECONDS_MAX, self._cut)
        self._timer.daemon = True

    def _cut(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # already closed
            return

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *exception: object) -> None:
        self._timer.cancel()
        self._timer.join()
        self._socket.close()


def _backend(row: Mapping[str, Any]) -> Backend:
    relation = f" on {row['relation']}" if row["relation"] else ""
    doubts = {
        "names_timeout": "its statement names a timeout",
        "functions_name_timeout": "a function of the database names a timeout",
    }
    timeouts, unknown = _timeouts(row)
    hidden = (
        f"{', '.join(sorted(unknown))} is set for the probe's own role, which hides the server's default" if unknown else ""
    )
    return Backend(
        pid=row["pid"],
        started=row["started"] or "",
        state=row["state"] or "",
        state_changed=row["state_changed"] or "",
        state_age=row["state_age"] or 0.0,
        statement_age=row["statement_age"] or 0.0,
        transaction_age=row["transaction_age"] or 0.0,
        waiting_since=row["waiting_since"],
        waiting_age=row["waiting_age"] or 0.0,
        lock=f"a lock ({row['locktype']}{relation}, {row['mode']})" if row["locktype"] else "",
        blockers=None if row["blockers"] is None else tuple(sorted(set(row["blockers"]))),
        address=row["address"] or "",
        port=row["port"] or 0,
        ours=bool(row["ours"]),
        timeouts=tuple(timeouts.items()),
        doubt=next((text for name, text in doubts.items() if row[name]), hidden),
    )


def _timeouts(row: Mapping[str, Any]) -> tuple[dict[str, float], set[str]]:
    """A session's default timeouts: of its role in this database, its role, the database, the server; and the unknown ones.

    Our own session began with the server's defaults, except where our role or database sets its own: these are unknown.
    """
    found = {name: seconds(value) for name, value in (row["defaults"] or {}).items()}
    ours = " ".join(setting for config in row["of_probe"] or [] for setting in config)
    unknown = {name for name in found if name in ours}
    ranked = sorted(row["of_role"] or [], key=lambda one: (one[1], one[0]))
    for setting in (setting for _, _, config in ranked for setting in config):
        name, _, value = setting.partition("=")
        if name in TIMEOUTS:
            found[name] = seconds(value)
            unknown.discard(name)
    return {name: value for name, value in found.items() if name not in unknown}, unknown


def _first_line(error: psycopg.Error) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
