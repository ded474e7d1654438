"""Every setting of the service: its default, bounds, unit (last in its name) and help text.

Flags and environment variables are derived from these fields (``--report-bytes-max``, ``STILLTRUE_SERVE_REPORT_BYTES_MAX``).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from types import MappingProxyType
from typing import Any

from detector.assembly.cluster import Cluster, read_properties
from detector.core.protocol.pace import Timing
from detector.core.selector import parse_selector
from detector.ops.address import is_loopback

_SCOPE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_EXPECTED_MAX = 1_000_000
_EXPECTED_DIGITS_MAX = 18
_SERVICE = "service:"
_BASE_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")
_KUBERNETES_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LEASE = re.compile(r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/)?[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_FLEET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
LOG_FORMATS = ("logfmt", "json")


class SettingError(ValueError):
    """An invalid setting; ``name`` is its flag, ``text`` one line that says what is valid."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


def _bounded(default: Any, low: float, high: float, help: str) -> Any:
    return field(default=default, metadata={"low": low, "high": high, "help": help})


def _text(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A named group of processes: those that have all of ``labels``."""

    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The processes that a scope expects: a number of them, or names.

    ``names`` are instances or services; ``services`` are Kubernetes Services (``NAMESPACE/NAME``), whose pods are expected.
    """

    count: int = 0
    names: frozenset[str] = frozenset()
    services: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The service's settings. Construction checks every bound and raises :class:`SettingError`."""

    host: str = _text("127.0.0.1", "address to listen on for gRPC; a non-local address needs TLS or --allow-plaintext")
    port: int = _bounded(7600, 0, 65535, "gRPC port; 0 picks a free one and prints it")
    http_host: str = _text(
        "127.0.0.1",
        "address to listen on for HTTP; it has no TLS, and no login without --roles-file, so a non-local address exposes it",
    )
    http_port: int = _bounded(7601, 0, 65535, "HTTP port (metrics, health, pages); 0 picks a free one and prints it")
    http_hosts: str = _text(
        "",
        "host names that HTTP requests may use, comma-separated; empty: any (on loopback: only loopback names)",
    )
    http_open: bool = _text(
        False, "with --roles-file: serve pages and metrics to every client of --http-port, not only to readers"
    )
    proxy_user_header: str = _text(
        "",
        "HTTP header in which an authenticating proxy names the user, such as X-Forwarded-User; needs --roles-file, which "
        "grants roles to users, and --trusted-proxies",
    )
    trusted_proxies: str = _text("", "addresses (10.0.0.0/8, ...) whose --proxy-user-header is trusted, comma-separated")
    base_path: str = _text(
        "", "path under which a reverse proxy publishes the web UI, such as /stilltrue; the prefix of every link"
    )
    external_url: str = _text("", "public URL of the web UI (https://host/path), for links in notifications")
    trace_url: str = _text("", "URL of a trace in your tracing system, with {trace} for its id, for links in the web UI")
    data: Path = field(default=Path("stilltrue-data"), metadata={"help": "directory for the detector's state and archive"})
    standby: bool = _text(False, "wait while another detector uses --data, and take over when it exits")
    standby_lease: str = _text(
        "",
        "Kubernetes Lease ([NAMESPACE/]NAME) for leader election among detectors with the same --data: its holder serves, the "
        "others wait for the Lease and for --data",
    )
    standby_lease_seconds: int = _bounded(15, 1, 3600, "how long the Lease may go unrenewed before another detector takes it")
    log_format: str = _text("logfmt", "format of the log on standard error")
    tls_cert_file: Path | None = field(
        default=None, metadata={"help": "PEM certificate chain of the gRPC port; reloaded when it changes"}
    )
    tls_key_file: Path | None = field(default=None, metadata={"help": "PEM private key of --tls-cert-file"})
    tls_client_ca_file: Path | None = field(
        default=None, metadata={"help": "PEM CA bundle to verify client certificates with; if set, clients must present one"}
    )
    roles_file: Path | None = field(
        default=None, metadata={"help": "TOML file that grants the roles agent, collector, reader and operator; needs TLS"}
    )
    allow_plaintext: bool = _text(False, "allow --host to be a non-local address without TLS")
    allow_cure: bool = _text(
        False,
        "let operators end deadlocks ('stilltrue cure' or the web UI) by aborting the victims' calls, if their processes "
        "allow it (STILLTRUE_ALLOW_CURE); on a non-local address this needs --roles-file",
    )
    access_log: bool = _text(
        False,
        "log every request of a user over gRPC and HTTP, accepted or refused, to access.jsonl in --data (at most 6 MiB)",
    )
    notify_url: str = _text("", "URL to notify when an incident opens or ends")
    kubernetes_events: str = _text(
        "", "namespaces, comma-separated, whose pods get a Kubernetes Event when one of their incidents opens or ends"
    )
    kafka: str = _text(
        "",
        "address of Kafka (HOST:PORT,...): agents then connect to collectors ('stilltrue collect'), 'stilltrue assemble' "
        "evaluates, and this process numbers snapshots and answers; or the URI or path of an object store or directory instead",
    )
    kafka_topics: str = _text("stilltrue", "prefix of the topic names")
    kafka_config: Path | None = field(
        default=None, metadata={"help": "file with KEY=VALUE lines for Kafka's client, such as security.protocol=SASL_SSL"}
    )
    fleet: str = _text("default", "name of this fleet, unique in the Kafka cluster")
    assembly_seconds_max: float = _bounded(60.0, 0.1, 3600, "with --kafka: how long to wait for a snapshot's verdicts")
    scopes: tuple[Scope, ...] = ()
    expected: Mapping[str, Expectation] = field(default_factory=lambda: MappingProxyType({}))
    predicate_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))

    period_seconds: float = _bounded(1.0, 0, 86400, "time between snapshots; 0: only on request")
    trigger_seconds_min: float = _bounded(0.5, 0.001, 3600, "minimum average time between snapshots requested by processes")
    triggers_burst_max: int = _bounded(5, 1, 1000, "burst size for snapshots requested by processes")
    give_up_seconds: float = _bounded(1.5, 0.01, 600, "how long a snapshot waits for a silent member")
    suspect_seconds: float = _bounded(0.25, 0.001, 600, "how long a snapshot waits for members that missed the previous one")
    pending_snapshots_max: int = _bounded(4, 1, 1000, "maximum number of snapshots in progress")
    look_give_up_seconds: float = _bounded(
        3.0, 0.01, 60, "how long a verification round waits for a member's second look; without that look there is no TRUE"
    )
    look_again_seconds_min: float = _bounded(
        0.5, 0, 3600, "pause before the same party is looked at again; doubles with each look"
    )
    lease_seconds: float = _bounded(5.0, 0.1, 3600, "how long a member may be silent before it counts as lost")
    forget_seconds: float = _bounded(
        600.0, 0, 10**7, "how long a lost member is remembered before it counts as gone; until then answers may depend on it"
    )

    members_max: int = _bounded(10_000, 1, 1_000_000, "maximum number of connected processes")
    report_bytes_max: int = _bounded(16 * 2**20, 1024, 2**30, "maximum size of a report")
    report_entries_max: int = _bounded(50_000, 1, 10**7, "maximum number of waits and calls in a report")
    reports_bytes_max: int = _bounded(2**27, 1024, 2**40, "maximum total size of all members' newest reports")
    reports_entries_max: int = _bounded(1_000_000, 1, 10**9, "maximum number of waits and calls in all members' newest reports")
    asks_max: int = _bounded(1000, 1, 100_000, "maximum number of pending questions")
    asks_per_connection_max: int = _bounded(200, 1, 100_000, "maximum number of pending questions per connection")
    watchers_per_connection_max: int = _bounded(20, 1, 100_000, "maximum number of watches per connection")
    watchers_max: int = _bounded(100, 1, 100_000, "maximum number of watches")
    heartbeat_seconds: float = _bounded(5.0, 0.1, 600, "heartbeat interval of a watch while nothing changes")
    evaluation_seconds_max: float = _bounded(10.0, 0.01, 3600, "time limit for one predicate on one snapshot")

    store_summaries_max: int = _bounded(100_000, 1, 10**9, "maximum number of snapshots whose summary is kept")
    store_documents_max: int = _bounded(500, 1, 10**7, "number of newest snapshots kept in full")
    store_documents_pinned_max: int = _bounded(
        10_000, 1, 10**7, "maximum number of snapshots kept in full because an incident or a changed verdict refers to them"
    )
    store_bytes_max: int = _bounded(2**30, 2**20, 2**50, "size of the snapshots kept in full; beyond it the oldest are deleted")
    store_queue_max: int = _bounded(64, 1, 10_000, "snapshots waiting to be stored; beyond it documents are dropped")
    archive_bytes_max: int = _bounded(
        2**30, 0, 2**50, "maximum size of the Parquet archive; beyond it the oldest files are deleted; 0: no archive"
    )
    store_incidents_max: int = _bounded(100_000, 1, 10**8, "closed incidents kept; beyond it the oldest are deleted")
    retention_seconds_max: float = _bounded(
        7_776_000.0, 0, 10**10, "age beyond which snapshots, closed incidents and archived days are deleted; 0: no age limit"
    )
    compact_seconds_min: float = _bounded(86400.0, 0, 10**9, "how long after the end of a day its files are merged; 0: never")
    archive_readers_max: int = _bounded(32, 1, 10_000, "maximum number of concurrent streams of the archive's rows")
    archive_take_seconds_max: float = _bounded(300.0, 0.1, 86400, "how long the reader of an archive stream may stall")

    def __post_init__(self) -> None:
        """Check the bounds."""
        for each in fields(self):
            if "low" in each.metadata:
                _check(flag(each.name), getattr(self, each.name), each.metadata["low"], each.metadata["high"])
        self._check_security()
        if self.log_format not in LOG_FORMATS:
            raise SettingError("--log-format", f"must be {' or '.join(LOG_FORMATS)}, not {self.log_format!r}")
        self._check_ports()
        if self.suspect_seconds > self.give_up_seconds:
            raise SettingError(
                "--suspect-seconds", f"{self.suspect_seconds:g} must not exceed --give-up-seconds ({self.give_up_seconds:g})"
            )
        names = [scope.name for scope in self.scopes]
        for name in names:
            if names.count(name) > 1 or name == "all":
                raise SettingError("--scope", f"{name!r} is taken: scope names are unique, and 'all' always exists")

        if self.standby_lease and not _LEASE.fullmatch(self.standby_lease):
            raise SettingError("--standby-lease", f"{self.standby_lease!r} is not [NAMESPACE/]NAME; for example stilltrue")
        self._check_addresses()
        for name in self.expected:
            if name not in {"all", *names}:
                raise SettingError("--expect", f"there is no scope {name!r}; define it with --scope")

    def _check_addresses(self) -> None:
        """Check names and addresses: of topics, namespaces, the web UI and its links."""
        self._check_proxies()
        for name, text in (("--fleet", self.fleet), ("--kafka-topics", self.kafka_topics)):
            if not _FLEET.fullmatch(text):
                raise SettingError(name, f"{text!r} is not a valid name: use letters, digits, dots, dashes and underscores")
        for namespace in self.event_namespaces:
            if not _NAMESPACE.fullmatch(namespace):
                raise SettingError("--kubernetes-events", f"{namespace!r} is not a valid namespace name")
        if self.base_path and not _BASE_PATH.fullmatch(self.base_path):
            raise SettingError("--base-path", f"must look like /stilltrue, without a trailing slash, not {self.base_path!r}")
        for name, url in (("--external-url", self.external_url), ("--trace-url", self.trace_url)):
            if url and not url.startswith(("http://", "https://")):
                raise SettingError(name, f"must begin with http:// or https://, not {url!r}")
        if self.trace_url and "{trace}" not in self.trace_url:
            raise SettingError("--trace-url", f"must contain {{trace}} in place of the trace id, not {self.trace_url!r}")

    def _check_proxies(self) -> None:
        """The proxy's header is trusted only from stated addresses, and names a user who has roles."""
        if bool(self.proxy_user_header) is not bool(self.trusted_proxies):
            raise SettingError(
                "--proxy-user-header", "requires --trusted-proxies, and vice versa: otherwise anyone could send it"
            )
        if self.proxy_user_header and (self.roles_file is None or not _HEADER.fullmatch(self.proxy_user_header)):
            raise SettingError("--proxy-user-header", "must be a header name; needs --roles-file, which grants roles to users")
        _ = self.proxy_networks

    def _check_ports(self) -> None:
        if self.port == self.http_port != 0 and self.host == self.http_host:
            raise SettingError("--http-port", f"{self.http_port} must differ from --port: gRPC and HTTP have a port each")

    def _check_security(self) -> None:
        """TLS is configured completely or not at all; plaintext on a non-local address must be allowed explicitly.

        HTTP has no TLS, so a non-local ``http_host`` is itself explicit.
        """
        if self.allow_cure and self.roles_file is None and not is_loopback(self.host):
            raise SettingError(
                "--allow-cure", f"{self.host} is not a local address: this needs --roles-file, which names operators"
            )
        if (self.tls_cert_file is None) is not (self.tls_key_file is None):
            raise SettingError("--tls-cert-file", "needs --tls-key-file, and vice versa")
        if self.tls_cert_file is not None:
            return
        if self.tls_client_ca_file is not None:
            raise SettingError("--tls-client-ca-file", "needs --tls-cert-file and --tls-key-file")
        if self.roles_file is not None:
            raise SettingError("--roles-file", "needs --tls-cert-file and --tls-key-file: tokens would be sent in plaintext")
        if not is_loopback(self.host) and not self.allow_plaintext:
            raise SettingError("--host", f"{self.host} is not a local address: it needs --tls-cert-file or --allow-plaintext")

    @property
    def http_names(self) -> frozenset[str]:
        """The names in ``http_hosts``."""
        return frozenset(name.strip().lower() for name in self.http_hosts.split(",") if name.strip())

    @property
    def proxy_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The networks in ``trusted_proxies``."""
        try:
            return tuple(ip_network(each.strip()) for each in self.trusted_proxies.split(",") if each.strip())
        except ValueError as error:
            raise SettingError("--trusted-proxies", str(error)) from None

    @property
    def event_namespaces(self) -> tuple[str, ...]:
        """The names in ``kubernetes_events``."""
        return tuple(name.strip() for name in self.kubernetes_events.split(",") if name.strip())

    @property
    def timing(self) -> Timing:
        """The settings of the initiator."""
        return Timing(
            period_seconds=self.period_seconds,
            trigger_seconds_min=self.trigger_seconds_min,
            triggers_burst_max=self.triggers_burst_max,
            give_up_seconds=self.give_up_seconds,
            suspect_seconds=self.suspect_seconds,
            pending_snapshots_max=self.pending_snapshots_max,
        )

    def cluster(self) -> Cluster:
        """The Kafka cluster. Raises :class:`~detector.assembly.cluster.RecordsUnavailableError`."""
        properties = read_properties(self.kafka_config)
        return Cluster(self.kafka, topics=self.kafka_topics, properties=properties, record_bytes_max=self.report_bytes_max)


def flag(name: str) -> str:
    """The command-line flag of a setting."""
    return "--" + name.replace("_", "-")


def scope_from_text(text: str) -> Scope:
    """Parse ``name=label=value[,label=value...]``."""
    name, _, selector = text.partition("=")
    if not _SCOPE_NAME.fullmatch(name):
        raise SettingError("--scope", f"{text!r} does not begin with a scope name; for example shop=team=shop")
    try:
        return Scope(name=name, labels=parse_selector(selector))
    except ValueError:
        raise SettingError("--scope", f"{text!r} selects no labels; for example shop=team=shop,tier=web") from None


def expectations_from_texts(texts: Iterable[str]) -> dict[str, Expectation]:
    """Parse ``[SCOPE=]5`` and ``[SCOPE=]name,service:namespace/name`` into the expectation of each scope."""
    found: dict[str, Expectation] = {}
    for text in texts:
        scope, equals, rest = text.rpartition("=")
        names = [name.strip() for name in rest.split(",")]
        services = [name.removeprefix(_SERVICE) for name in names if name.startswith(_SERVICE)]
        if not all(names) or (equals and not scope) or (rest.removeprefix("-").isdecimal() and not _is_expectable(rest)):
            raise SettingError("--expect", f"{text!r} is not [SCOPE=]NUMBER or [SCOPE=]NAME,...; for example shop=5")
        if not all(map(_KUBERNETES_NAME.fullmatch, services)):
            raise SettingError("--expect", f"{text!r} is not [SCOPE=]service:NAMESPACE/NAME; for example service:shop/orders")
        if (scope or "all") in found:
            raise SettingError("--expect", f"{scope or 'all'!r} already has an expectation")
        found[scope or "all"] = (
            Expectation(count=int(rest))
            if rest.isdecimal()
            else Expectation(
                names=frozenset(name for name in names if not name.startswith(_SERVICE)), services=frozenset(services)
            )
        )
    return found


def _is_expectable(digits: str) -> bool:
    return len(digits) <= _EXPECTED_DIGITS_MAX and 1 <= int(digits) <= _EXPECTED_MAX


def predicate_settings_from_texts(texts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Parse ``predicate.key=value`` into settings by predicate; a value that is not JSON is a string."""
    settings: dict[str, dict[str, Any]] = {}
    for text in texts:
        place, equals, value = text.partition("=")
        predicate, dot, key = place.rpartition(".")
        if not (equals and dot and predicate and key.isidentifier()):
            raise SettingError("--set", f"{text!r} is not a valid PREDICATE.KEY=VALUE; for example token-lost.fact=lease")
        try:
            settings.setdefault(predicate, {})[key] = json.loads(value)
        except RecursionError:
            raise SettingError("--set", f"the value of {place} is nested too deeply") from None
        except ValueError:
            settings.setdefault(predicate, {})[key] = value
    return settings


def _check(name: str, value: float, low: float, high: float) -> None:
    if math.isnan(value) or not low <= value <= high:
        bounds = " and ".join(f"{bound:g}" if isinstance(value, float) else str(int(bound)) for bound in (low, high))
        raise SettingError(name, f"must be between {bounds}, not {value:g}")
