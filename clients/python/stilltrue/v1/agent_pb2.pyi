from stilltrue.v1 import snapshot_pb2 as _snapshot_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ConnectRequest(_message.Message):
    __slots__ = ["cured", "difference", "goodbye", "hello", "lease", "looked", "report", "stacks_found", "wish"]
    CURED_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    LOOKED_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    STACKS_FOUND_FIELD_NUMBER: _ClassVar[int]
    WISH_FIELD_NUMBER: _ClassVar[int]
    cured: Cured
    difference: Difference
    goodbye: Goodbye
    hello: Hello
    lease: Lease
    looked: Looked
    report: _snapshot_pb2.Report
    stacks_found: StacksFound
    wish: Wish
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., report: _Optional[_Union[_snapshot_pb2.Report, _Mapping]] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ..., wish: _Optional[_Union[Wish, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., looked: _Optional[_Union[Looked, _Mapping]] = ..., cured: _Optional[_Union[Cured, _Mapping]] = ..., stacks_found: _Optional[_Union[StacksFound, _Mapping]] = ..., difference: _Optional[_Union[Difference, _Mapping]] = ...) -> None: ...

class ConnectResponse(_message.Message):
    __slots__ = ["cure", "look", "mark", "stacks", "welcome"]
    CURE_FIELD_NUMBER: _ClassVar[int]
    LOOK_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    STACKS_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    cure: Cure
    look: Look
    mark: Mark
    stacks: StacksRequest
    welcome: Welcome
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., mark: _Optional[_Union[Mark, _Mapping]] = ..., look: _Optional[_Union[Look, _Mapping]] = ..., cure: _Optional[_Union[Cure, _Mapping]] = ..., stacks: _Optional[_Union[StacksRequest, _Mapping]] = ...) -> None: ...

class Cure(_message.Message):
    __slots__ = ["incident", "number", "victims"]
    INCIDENT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    VICTIMS_FIELD_NUMBER: _ClassVar[int]
    incident: str
    number: int
    victims: _containers.RepeatedCompositeFieldContainer[Suspect]
    def __init__(self, number: _Optional[int] = ..., incident: _Optional[str] = ..., victims: _Optional[_Iterable[_Union[Suspect, _Mapping]]] = ...) -> None: ...

class Cured(_message.Message):
    __slots__ = ["number", "parties"]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    number: int
    parties: _containers.RepeatedCompositeFieldContainer[PartyCured]
    def __init__(self, number: _Optional[int] = ..., parties: _Optional[_Iterable[_Union[PartyCured, _Mapping]]] = ...) -> None: ...

class Difference(_message.Message):
    __slots__ = ["after", "base", "cut_at", "pieces", "snapshot"]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    CUT_AT_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    after: int
    base: int
    cut_at: float
    pieces: _containers.RepeatedCompositeFieldContainer[Piece]
    snapshot: int
    def __init__(self, base: _Optional[int] = ..., snapshot: _Optional[int] = ..., after: _Optional[int] = ..., cut_at: _Optional[float] = ..., pieces: _Optional[_Iterable[_Union[Piece, _Mapping]]] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class Hello(_message.Message):
    __slots__ = ["agent", "colour", "cures", "labels", "looks", "process", "reactive", "sight", "stacks"]
    class LabelsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    AGENT_FIELD_NUMBER: _ClassVar[int]
    COLOUR_FIELD_NUMBER: _ClassVar[int]
    CURES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    LOOKS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    REACTIVE_FIELD_NUMBER: _ClassVar[int]
    SIGHT_FIELD_NUMBER: _ClassVar[int]
    STACKS_FIELD_NUMBER: _ClassVar[int]
    agent: str
    colour: int
    cures: bool
    labels: _containers.ScalarMap[str, str]
    looks: bool
    process: _snapshot_pb2.ProcessId
    reactive: bool
    sight: Sight
    stacks: bool
    def __init__(self, process: _Optional[_Union[_snapshot_pb2.ProcessId, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., colour: _Optional[int] = ..., agent: _Optional[str] = ..., reactive: bool = ..., looks: bool = ..., sight: _Optional[_Union[Sight, _Mapping]] = ..., cures: bool = ..., stacks: bool = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ["colour", "reports_dropped", "sight", "stamps_refused"]
    COLOUR_FIELD_NUMBER: _ClassVar[int]
    REPORTS_DROPPED_FIELD_NUMBER: _ClassVar[int]
    SIGHT_FIELD_NUMBER: _ClassVar[int]
    STAMPS_REFUSED_FIELD_NUMBER: _ClassVar[int]
    colour: int
    reports_dropped: int
    sight: Sight
    stamps_refused: int
    def __init__(self, colour: _Optional[int] = ..., reports_dropped: _Optional[int] = ..., stamps_refused: _Optional[int] = ..., sight: _Optional[_Union[Sight, _Mapping]] = ...) -> None: ...

class Look(_message.Message):
    __slots__ = ["activity", "snapshot", "suspects"]
    ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    SUSPECTS_FIELD_NUMBER: _ClassVar[int]
    activity: bool
    snapshot: int
    suspects: _containers.RepeatedCompositeFieldContainer[Suspect]
    def __init__(self, snapshot: _Optional[int] = ..., suspects: _Optional[_Iterable[_Union[Suspect, _Mapping]]] = ..., activity: bool = ...) -> None: ...

class Looked(_message.Message):
    __slots__ = ["happenings", "parties", "snapshot", "unaccounted"]
    HAPPENINGS_FIELD_NUMBER: _ClassVar[int]
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    UNACCOUNTED_FIELD_NUMBER: _ClassVar[int]
    happenings: int
    parties: _containers.RepeatedCompositeFieldContainer[PartyLook]
    snapshot: int
    unaccounted: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, snapshot: _Optional[int] = ..., parties: _Optional[_Iterable[_Union[PartyLook, _Mapping]]] = ..., happenings: _Optional[int] = ..., unaccounted: _Optional[_Iterable[str]] = ...) -> None: ...

class Mark(_message.Message):
    __slots__ = ["settled", "snapshot"]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    settled: _containers.RepeatedScalarFieldContainer[int]
    snapshot: int
    def __init__(self, snapshot: _Optional[int] = ..., settled: _Optional[_Iterable[int]] = ...) -> None: ...

class PartyCured(_message.Message):
    __slots__ = ["aborted", "party", "text"]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    aborted: bool
    party: str
    text: str
    def __init__(self, party: _Optional[str] = ..., aborted: bool = ..., text: _Optional[str] = ...) -> None: ...

class PartyLook(_message.Message):
    __slots__ = ["deadline", "doubt", "grown_by", "interruptible", "party", "stack", "trace", "unchanged", "ways_out"]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    DOUBT_FIELD_NUMBER: _ClassVar[int]
    GROWN_BY_FIELD_NUMBER: _ClassVar[int]
    INTERRUPTIBLE_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    WAYS_OUT_FIELD_NUMBER: _ClassVar[int]
    deadline: float
    doubt: str
    grown_by: str
    interruptible: bool
    party: str
    stack: _containers.RepeatedScalarFieldContainer[str]
    trace: str
    unchanged: bool
    ways_out: _containers.RepeatedCompositeFieldContainer[WayOut]
    def __init__(self, party: _Optional[str] = ..., unchanged: bool = ..., deadline: _Optional[float] = ..., ways_out: _Optional[_Iterable[_Union[WayOut, _Mapping]]] = ..., doubt: _Optional[str] = ..., stack: _Optional[_Iterable[str]] = ..., trace: _Optional[str] = ..., interruptible: bool = ..., grown_by: _Optional[str] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ["count", "fields", "first"]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    count: int
    fields: bytes
    first: int
    def __init__(self, first: _Optional[int] = ..., count: _Optional[int] = ..., fields: _Optional[bytes] = ...) -> None: ...

class Sight(_message.Message):
    __slots__ = ["blind", "calls", "channels", "channels_unseen", "instrumented", "servers", "servers_unseen", "unexplained", "unexplained_calls", "unexplained_waits"]
    BLIND_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_UNSEEN_FIELD_NUMBER: _ClassVar[int]
    INSTRUMENTED_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    SERVERS_UNSEEN_FIELD_NUMBER: _ClassVar[int]
    UNEXPLAINED_CALLS_FIELD_NUMBER: _ClassVar[int]
    UNEXPLAINED_FIELD_NUMBER: _ClassVar[int]
    UNEXPLAINED_WAITS_FIELD_NUMBER: _ClassVar[int]
    blind: _containers.RepeatedScalarFieldContainer[str]
    calls: int
    channels: int
    channels_unseen: int
    instrumented: bool
    servers: int
    servers_unseen: int
    unexplained: int
    unexplained_calls: int
    unexplained_waits: int
    def __init__(self, servers: _Optional[int] = ..., channels: _Optional[int] = ..., calls: _Optional[int] = ..., servers_unseen: _Optional[int] = ..., channels_unseen: _Optional[int] = ..., blind: _Optional[_Iterable[str]] = ..., unexplained: _Optional[int] = ..., unexplained_calls: _Optional[int] = ..., unexplained_waits: _Optional[int] = ..., instrumented: bool = ...) -> None: ...

class StacksFound(_message.Message):
    __slots__ = ["left_out", "number", "parties"]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    left_out: int
    number: int
    parties: _containers.RepeatedCompositeFieldContainer[StandingParty]
    def __init__(self, number: _Optional[int] = ..., parties: _Optional[_Iterable[_Union[StandingParty, _Mapping]]] = ..., left_out: _Optional[int] = ...) -> None: ...

class StacksRequest(_message.Message):
    __slots__ = ["number"]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class StandingParty(_message.Message):
    __slots__ = ["blocked_in", "held_by", "party", "stack", "unexplained"]
    BLOCKED_IN_FIELD_NUMBER: _ClassVar[int]
    HELD_BY_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    UNEXPLAINED_FIELD_NUMBER: _ClassVar[int]
    blocked_in: str
    held_by: _containers.RepeatedScalarFieldContainer[str]
    party: str
    stack: _containers.RepeatedScalarFieldContainer[str]
    unexplained: bool
    def __init__(self, party: _Optional[str] = ..., blocked_in: _Optional[str] = ..., held_by: _Optional[_Iterable[str]] = ..., stack: _Optional[_Iterable[str]] = ..., unexplained: bool = ...) -> None: ...

class Suspect(_message.Message):
    __slots__ = ["party", "waits"]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    party: str
    waits: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, party: _Optional[str] = ..., waits: _Optional[_Iterable[int]] = ...) -> None: ...

class WayOut(_message.Message):
    __slots__ = ["party", "text"]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    party: str
    text: str
    def __init__(self, text: _Optional[str] = ..., party: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ["detector", "differences", "lease_seconds", "report_bytes_max"]
    DETECTOR_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REPORT_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    detector: str
    differences: bool
    lease_seconds: float
    report_bytes_max: int
    def __init__(self, detector: _Optional[str] = ..., lease_seconds: _Optional[float] = ..., report_bytes_max: _Optional[int] = ..., differences: bool = ...) -> None: ...

class Wish(_message.Message):
    __slots__ = ["covered_seconds", "reason"]
    COVERED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    covered_seconds: float
    reason: str
    def __init__(self, reason: _Optional[str] = ..., covered_seconds: _Optional[float] = ...) -> None: ...
