"""The roles of clients, which a file grants to certificates by name, to tokens and to users."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from detector.ops.files.watched_files import Signature, WatchedFiles
from detector.ops.logs import Log
from stilltrue.model import ProcessId
from stilltrue.runtime.membership.secret_file import writable_by_all

_OPEN = ("/grpc.health.v1.Health/",)
_AGENT_SERVICE = "/stilltrue.v1.AgentService/"
_COLLECTOR_SERVICE = "/stilltrue.v1.CollectorService/"
_OPERATORS = frozenset(f"/stilltrue.v1.DetectorService/{method}" for method in ("Ask", "Cure", "Forget"))
_WATCH_SECONDS = 1.0
"""How often the file is looked at although nobody asks, so that the log says soon after an edit whether it is valid."""


class SecurityError(ValueError):
    """A security file is unusable; the message names the file and the error in one line."""


class Role(Enum):
    """What a client may do: report as an agent; relay any agent; read; read, take snapshots, end incidents
    and forget lost members."""

    AGENT = "agent"
    COLLECTOR = "collector"
    READER = "reader"
    OPERATOR = "operator"


READERS = frozenset({Role.READER, Role.OPERATOR})
"""The roles that may read pages and metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A role for certificates with names that match a pattern (``*``, ``?``), and for tokens with these SHA-256 sums.

    ``users``: patterns of users that an authenticating proxy names (web UI only).
    ``processes`` (agents only): patterns of instances or services that the agent may report as; none: any.
    """

    role: Role
    processes: tuple[str, ...] = ()
    certificates: tuple[str, ...] = ()
    tokens_sha256: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


class Roles:
    """The roles file (TOML: ``[[grant]]`` with ``role``, ``certificates``, ``tokens_sha256``, ``users``), reloadable."""

    def __init__(self, path: Path, log: Log, *, asks_for_certificates: bool = True) -> None:
        """``asks_for_certificates``: whether clients are asked for certificates at all. Raises :class:`SecurityError`."""
        self._path = path
        self._asks_for_certificates = asks_for_certificates
        self._log = log
        self._file = WatchedFiles([path])
        self._grants: tuple[Grant, ...] = ()
        self._told: tuple[Signature | None, str] | None = None
        """The signature and the error of the newest version that was refused and logged."""
        self._follow(first=True)

    async def run(self) -> None:
        """Reload the file whenever it has changed, for ever."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            self._follow()

    def of(self, names: frozenset[str], token: str, user: str = "") -> frozenset[Role]:
        """The roles of a client with these certificate names, this token and this proxy user (empty: none)."""
        self._follow()
        sum_ = hashlib.sha256(token.encode()).hexdigest() if token else ""
        return frozenset(grant.role for grant in self._grants if _fits(grant, names, sum_) or _is_user(grant, user))

    def may_report_as(self, names: frozenset[str], token: str, process: ProcessId) -> bool:
        """Whether a grant of the client lets it report as ``process``."""
        sum_ = hashlib.sha256(token.encode()).hexdigest() if token else ""
        grants = [grant for grant in self._grants if grant.role is Role.AGENT and _fits(grant, names, sum_)]
        patterns = [pattern for grant in grants for pattern in grant.processes or ("*",)]
        return any(fnmatchcase(name, pattern) for pattern in patterns for name in (process.instance, process.service))

    def _follow(self, *, first: bool = False) -> None:
        changed = None
        try:
            changed = self._file.changed()
            if changed is None:
                return
            if writable_by_all(self._path):
                raise SecurityError(f"{self._path}: writable by all users (chmod o-w)")  # noqa: TRY301
            self._grants = read_grants(self._path)
            self._file.take(changed)
        except OSError as error:
            failure = SecurityError(f"{self._path}: {error.strerror}")
        except SecurityError as error:
            failure = error
        else:
            if not first:
                self._log.info("roles reloaded", file=self._path)
            if not self._asks_for_certificates and any(grant.certificates for grant in self._grants):
                text = "it grants roles to certificates, but no client is asked for one"
                self._log.warning("roles without effect", file=self._path, text=text, fix="--tls-client-ca-file")
            return
        if first:
            raise failure
        if self._told != (changed, str(failure)):
            self._told = changed, str(failure)
            self._log.warning("roles not reloaded; the previous ones stay in use", text=str(failure))


def read_grants(path: Path) -> tuple[Grant, ...]:
    """Read a roles file. Raises :class:`SecurityError` and ``OSError``."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SecurityError(f"{path}: {error}") from None
    if set(found) - {"grant"} or not isinstance(found.get("grant", []), list):
        raise SecurityError(f"{path}: only [[grant]] tables are allowed")
    return tuple(_grant(path, index, each) for index, each in enumerate(found.get("grant", []), 1))


def _grant(path: Path, index: int, found: Any) -> Grant:
    where = f"{path}: grant {index}"
    known = {"role", "certificates", "tokens_sha256", "processes", "users"}
    if not isinstance(found, Mapping) or set(found) - known:
        raise SecurityError(f"{where}: the only keys are {', '.join(sorted(known))}")
    try:
        role = Role(found.get("role"))
    except ValueError:
        raise SecurityError(f"{where}: role is one of {', '.join(r.value for r in Role)}, not {found.get('role')!r}") from None
    lists = {key: found.get(key, []) for key in ("certificates", "tokens_sha256", "processes", "users")}
    for key, values in lists.items():
        if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
            raise SecurityError(f"{where}: {key} must be a list of strings")
    for sum_ in lists["tokens_sha256"]:
        if len(sum_) != 64 or not set(sum_.lower()) <= set("0123456789abcdef"):
            raise SecurityError(f"{where}: tokens_sha256 must hold strings of 64 hex digits, as sha256sum prints them")
    if lists["processes"] and role is not Role.AGENT:
        raise SecurityError(f"{where}: processes are allowed only for the role agent")
    if lists["users"] and role is Role.AGENT:
        raise SecurityError(f"{where}: users are not allowed for the role agent")
    return Grant(
        role=role,
        processes=tuple(lists["processes"]),
        certificates=tuple(lists["certificates"]),
        users=tuple(lists["users"]),
        tokens_sha256=tuple(sum_.lower() for sum_ in lists["tokens_sha256"]),
    )


def _fits(grant: Grant, names: frozenset[str], token_sum: str) -> bool:
    by_name = any(_names(pattern, name) for pattern in grant.certificates for name in names)
    by_token = bool(token_sum) and any(hmac.compare_digest(token_sum, known) for known in grant.tokens_sha256)
    return by_name or by_token


def _is_user(grant: Grant, user: str) -> bool:
    return bool(user) and any(fnmatchcase(user, pattern) for pattern in grant.users)


def _names(pattern: str, name: str) -> bool:
    """Whether ``pattern`` matches ``name``: ``*.shop.svc`` matches only host names, neither mail addresses nor URIs."""
    return fnmatchcase(name, pattern) and (pattern == "*" or _kind(pattern) == _kind(name))


def _kind(name: str) -> str:
    return "mail" if name.startswith("email:") else "uri" if "://" in name else "host"


def describe_client(names: frozenset[str], token: str, address: str) -> str:
    """Describe a client for the audit log: its certificate's names, its token's checksum, and its address."""
    shown = sorted(names) + ([f"token {hashlib.sha256(token.encode()).hexdigest()[:12]}"] if token else [])
    return f"{', '.join(shown) or 'an anonymous client'} from {address}"


def roles_for(method: str) -> frozenset[Role]:
    """The roles that may call a method; empty: any client."""
    if method.startswith(_OPEN):
        return frozenset()
    if method.startswith(_AGENT_SERVICE):
        return frozenset({Role.AGENT})
    if method.startswith(_COLLECTOR_SERVICE):
        return frozenset({Role.COLLECTOR})
    if method in _OPERATORS:
        return frozenset({Role.OPERATOR})
    return READERS
