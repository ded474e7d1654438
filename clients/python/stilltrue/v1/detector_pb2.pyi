from stilltrue.v1 import agent_pb2 as _agent_pb2
from stilltrue.v1 import snapshot_pb2 as _snapshot_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

AGENT_STATE_LIVE: AgentState
AGENT_STATE_LOST: AgentState
AGENT_STATE_MISSING: AgentState
AGENT_STATE_UNSPECIFIED: AgentState
DESCRIPTOR: _descriptor.FileDescriptor

class Agent(_message.Message):
    __slots__ = ["agent", "blind", "colour", "connected_at", "heard_at", "labels", "parties", "process", "reactive", "reports_dropped", "sight", "state"]
    class LabelsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    AGENT_FIELD_NUMBER: _ClassVar[int]
    BLIND_FIELD_NUMBER: _ClassVar[int]
    COLOUR_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_AT_FIELD_NUMBER: _ClassVar[int]
    HEARD_AT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    REACTIVE_FIELD_NUMBER: _ClassVar[int]
    REPORTS_DROPPED_FIELD_NUMBER: _ClassVar[int]
    SIGHT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    agent: str
    blind: _containers.RepeatedScalarFieldContainer[str]
    colour: int
    connected_at: float
    heard_at: float
    labels: _containers.ScalarMap[str, str]
    parties: int
    process: _snapshot_pb2.ProcessId
    reactive: bool
    reports_dropped: int
    sight: _agent_pb2.Sight
    state: AgentState
    def __init__(self, process: _Optional[_Union[_snapshot_pb2.ProcessId, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., state: _Optional[_Union[AgentState, str]] = ..., connected_at: _Optional[float] = ..., heard_at: _Optional[float] = ..., colour: _Optional[int] = ..., agent: _Optional[str] = ..., reports_dropped: _Optional[int] = ..., reactive: bool = ..., sight: _Optional[_Union[_agent_pb2.Sight, _Mapping]] = ..., parties: _Optional[int] = ..., blind: _Optional[_Iterable[str]] = ...) -> None: ...

class ArchiveRange(_message.Message):
    __slots__ = ["since", "until"]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    since: int
    until: int
    def __init__(self, since: _Optional[int] = ..., until: _Optional[int] = ...) -> None: ...

class ArchiveTable(_message.Message):
    __slots__ = ["name", "ranges"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    name: str
    ranges: _containers.RepeatedCompositeFieldContainer[ArchiveRange]
    def __init__(self, name: _Optional[str] = ..., ranges: _Optional[_Iterable[_Union[ArchiveRange, _Mapping]]] = ...) -> None: ...

class AskRequest(_message.Message):
    __slots__ = ["predicate", "scope"]
    PREDICATE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    predicate: str
    scope: str
    def __init__(self, predicate: _Optional[str] = ..., scope: _Optional[str] = ...) -> None: ...

class AskResponse(_message.Message):
    __slots__ = ["verdict"]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    verdict: _snapshot_pb2.Verdict
    def __init__(self, verdict: _Optional[_Union[_snapshot_pb2.Verdict, _Mapping]] = ...) -> None: ...

class CureRecord(_message.Message):
    __slots__ = ["at", "text", "who"]
    AT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    at: float
    text: str
    who: str
    def __init__(self, at: _Optional[float] = ..., who: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class CureRequest(_message.Message):
    __slots__ = ["incident", "preview"]
    INCIDENT_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    incident: str
    preview: bool
    def __init__(self, incident: _Optional[str] = ..., preview: bool = ...) -> None: ...

class CureResponse(_message.Message):
    __slots__ = ["freed", "incident", "over", "snapshot", "text", "victims"]
    FREED_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    VICTIMS_FIELD_NUMBER: _ClassVar[int]
    freed: _containers.RepeatedScalarFieldContainer[str]
    incident: str
    over: bool
    snapshot: int
    text: str
    victims: _containers.RepeatedCompositeFieldContainer[CureVictim]
    def __init__(self, incident: _Optional[str] = ..., victims: _Optional[_Iterable[_Union[CureVictim, _Mapping]]] = ..., freed: _Optional[_Iterable[str]] = ..., over: bool = ..., snapshot: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class CureVictim(_message.Message):
    __slots__ = ["aborted", "party", "text"]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    aborted: bool
    party: str
    text: str
    def __init__(self, party: _Optional[str] = ..., aborted: bool = ..., text: _Optional[str] = ...) -> None: ...

class DescribeArchiveRequest(_message.Message):
    __slots__ = ["day_max", "day_min", "snapshot_max", "snapshot_min", "table"]
    DAY_MAX_FIELD_NUMBER: _ClassVar[int]
    DAY_MIN_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_MAX_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_MIN_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    day_max: str
    day_min: str
    snapshot_max: int
    snapshot_min: int
    table: str
    def __init__(self, table: _Optional[str] = ..., snapshot_min: _Optional[int] = ..., snapshot_max: _Optional[int] = ..., day_min: _Optional[str] = ..., day_max: _Optional[str] = ...) -> None: ...

class DescribeArchiveResponse(_message.Message):
    __slots__ = ["tables"]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedCompositeFieldContainer[ArchiveTable]
    def __init__(self, tables: _Optional[_Iterable[_Union[ArchiveTable, _Mapping]]] = ...) -> None: ...

class ForgetRequest(_message.Message):
    __slots__ = ["process"]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    process: str
    def __init__(self, process: _Optional[str] = ...) -> None: ...

class ForgetResponse(_message.Message):
    __slots__ = ["agent"]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    agent: Agent
    def __init__(self, agent: _Optional[_Union[Agent, _Mapping]] = ...) -> None: ...

class GetSnapshotRequest(_message.Message):
    __slots__ = ["id"]
    ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    def __init__(self, id: _Optional[int] = ...) -> None: ...

class GetSnapshotResponse(_message.Message):
    __slots__ = ["document_json", "summary", "verdicts"]
    DOCUMENT_JSON_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    document_json: str
    summary: SnapshotSummary
    verdicts: _containers.RepeatedCompositeFieldContainer[_snapshot_pb2.Verdict]
    def __init__(self, summary: _Optional[_Union[SnapshotSummary, _Mapping]] = ..., document_json: _Optional[str] = ..., verdicts: _Optional[_Iterable[_Union[_snapshot_pb2.Verdict, _Mapping]]] = ...) -> None: ...

class Incident(_message.Message):
    __slots__ = ["behind", "closed", "core", "cures", "ending", "first_snapshot", "formed", "id", "last_snapshot", "lost", "opened", "predicate", "scope", "seen", "text", "waits"]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    CORE_FIELD_NUMBER: _ClassVar[int]
    CURES_FIELD_NUMBER: _ClassVar[int]
    ENDING_FIELD_NUMBER: _ClassVar[int]
    FIRST_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    FORMED_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    LAST_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    PREDICATE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    behind: _containers.RepeatedScalarFieldContainer[str]
    closed: float
    core: _containers.RepeatedScalarFieldContainer[str]
    cures: _containers.RepeatedCompositeFieldContainer[CureRecord]
    ending: str
    first_snapshot: int
    formed: float
    id: str
    last_snapshot: int
    lost: _containers.RepeatedScalarFieldContainer[str]
    opened: float
    predicate: str
    scope: str
    seen: float
    text: str
    waits: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., predicate: _Optional[str] = ..., scope: _Optional[str] = ..., core: _Optional[_Iterable[str]] = ..., behind: _Optional[_Iterable[str]] = ..., opened: _Optional[float] = ..., seen: _Optional[float] = ..., closed: _Optional[float] = ..., formed: _Optional[float] = ..., first_snapshot: _Optional[int] = ..., last_snapshot: _Optional[int] = ..., text: _Optional[str] = ..., waits: _Optional[_Iterable[str]] = ..., ending: _Optional[str] = ..., lost: _Optional[_Iterable[str]] = ..., cures: _Optional[_Iterable[_Union[CureRecord, _Mapping]]] = ...) -> None: ...

class ListAgentsRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ListAgentsResponse(_message.Message):
    __slots__ = ["agents"]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedCompositeFieldContainer[Agent]
    def __init__(self, agents: _Optional[_Iterable[_Union[Agent, _Mapping]]] = ...) -> None: ...

class ListIncidentsRequest(_message.Message):
    __slots__ = ["limit", "open_only"]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OPEN_ONLY_FIELD_NUMBER: _ClassVar[int]
    limit: int
    open_only: bool
    def __init__(self, limit: _Optional[int] = ..., open_only: bool = ...) -> None: ...

class ListIncidentsResponse(_message.Message):
    __slots__ = ["incidents"]
    INCIDENTS_FIELD_NUMBER: _ClassVar[int]
    incidents: _containers.RepeatedCompositeFieldContainer[Incident]
    def __init__(self, incidents: _Optional[_Iterable[_Union[Incident, _Mapping]]] = ...) -> None: ...

class ListSnapshotsRequest(_message.Message):
    __slots__ = ["limit"]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    limit: int
    def __init__(self, limit: _Optional[int] = ...) -> None: ...

class ListSnapshotsResponse(_message.Message):
    __slots__ = ["snapshots"]
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    snapshots: _containers.RepeatedCompositeFieldContainer[SnapshotSummary]
    def __init__(self, snapshots: _Optional[_Iterable[_Union[SnapshotSummary, _Mapping]]] = ...) -> None: ...

class ListStacksRequest(_message.Message):
    __slots__ = ["process"]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    process: str
    def __init__(self, process: _Optional[str] = ...) -> None: ...

class ListStacksResponse(_message.Message):
    __slots__ = ["processes"]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    processes: _containers.RepeatedCompositeFieldContainer[ProcessStacks]
    def __init__(self, processes: _Optional[_Iterable[_Union[ProcessStacks, _Mapping]]] = ...) -> None: ...

class ProcessStacks(_message.Message):
    __slots__ = ["left_out", "parties", "process", "silent"]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    SILENT_FIELD_NUMBER: _ClassVar[int]
    left_out: int
    parties: _containers.RepeatedCompositeFieldContainer[_agent_pb2.StandingParty]
    process: str
    silent: str
    def __init__(self, process: _Optional[str] = ..., parties: _Optional[_Iterable[_Union[_agent_pb2.StandingParty, _Mapping]]] = ..., left_out: _Optional[int] = ..., silent: _Optional[str] = ...) -> None: ...

class ReadArchiveRequest(_message.Message):
    __slots__ = ["columns", "rows_max", "since", "table", "until", "whole"]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_MAX_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    columns: _containers.RepeatedScalarFieldContainer[str]
    rows_max: int
    since: int
    table: str
    until: int
    whole: bool
    def __init__(self, table: _Optional[str] = ..., columns: _Optional[_Iterable[str]] = ..., since: _Optional[int] = ..., until: _Optional[int] = ..., whole: bool = ..., rows_max: _Optional[int] = ...) -> None: ...

class ReadArchiveResponse(_message.Message):
    __slots__ = ["batch", "schema", "since", "until"]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    batch: bytes
    schema: bytes
    since: int
    until: int
    def __init__(self, schema: _Optional[bytes] = ..., batch: _Optional[bytes] = ..., since: _Optional[int] = ..., until: _Optional[int] = ...) -> None: ...

class SnapshotSummary(_message.Message):
    __slots__ = ["begun_by", "kept", "missing", "outcome", "ref", "verdicts"]
    class VerdictsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _snapshot_pb2.Holds
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_snapshot_pb2.Holds, str]] = ...) -> None: ...
    BEGUN_BY_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    begun_by: str
    kept: bool
    missing: _containers.RepeatedScalarFieldContainer[str]
    outcome: str
    ref: _snapshot_pb2.SnapshotRef
    verdicts: _containers.ScalarMap[str, _snapshot_pb2.Holds]
    def __init__(self, ref: _Optional[_Union[_snapshot_pb2.SnapshotRef, _Mapping]] = ..., outcome: _Optional[str] = ..., begun_by: _Optional[str] = ..., missing: _Optional[_Iterable[str]] = ..., verdicts: _Optional[_Mapping[str, _snapshot_pb2.Holds]] = ..., kept: bool = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ["predicate", "scope"]
    PREDICATE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    predicate: str
    scope: str
    def __init__(self, predicate: _Optional[str] = ..., scope: _Optional[str] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ["verdict"]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    verdict: _snapshot_pb2.Verdict
    def __init__(self, verdict: _Optional[_Union[_snapshot_pb2.Verdict, _Mapping]] = ...) -> None: ...

class AgentState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
