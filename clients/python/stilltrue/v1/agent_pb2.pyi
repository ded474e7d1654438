from stilltrue.v1 import snapshot_pb2 as _snapshot_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Sight(_message.Message):
    __slots__ = ("servers", "channels", "calls", "servers_unseen", "channels_unseen", "blind")
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    SERVERS_UNSEEN_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_UNSEEN_FIELD_NUMBER: _ClassVar[int]
    BLIND_FIELD_NUMBER: _ClassVar[int]
    servers: int
    channels: int
    calls: int
    servers_unseen: int
    channels_unseen: int
    blind: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, servers: _Optional[int] = ..., channels: _Optional[int] = ..., calls: _Optional[int] = ..., servers_unseen: _Optional[int] = ..., channels_unseen: _Optional[int] = ..., blind: _Optional[_Iterable[str]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("process", "labels", "colour", "agent", "reactive", "looks", "sight")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    COLOUR_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    REACTIVE_FIELD_NUMBER: _ClassVar[int]
    LOOKS_FIELD_NUMBER: _ClassVar[int]
    SIGHT_FIELD_NUMBER: _ClassVar[int]
    process: _snapshot_pb2.ProcessId
    labels: _containers.ScalarMap[str, str]
    colour: int
    agent: str
    reactive: bool
    looks: bool
    sight: Sight
    def __init__(self, process: _Optional[_Union[_snapshot_pb2.ProcessId, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., colour: _Optional[int] = ..., agent: _Optional[str] = ..., reactive: bool = ..., looks: bool = ..., sight: _Optional[_Union[Sight, _Mapping]] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("colour", "reports_dropped", "stamps_refused", "sight")
    COLOUR_FIELD_NUMBER: _ClassVar[int]
    REPORTS_DROPPED_FIELD_NUMBER: _ClassVar[int]
    STAMPS_REFUSED_FIELD_NUMBER: _ClassVar[int]
    SIGHT_FIELD_NUMBER: _ClassVar[int]
    colour: int
    reports_dropped: int
    stamps_refused: int
    sight: Sight
    def __init__(self, colour: _Optional[int] = ..., reports_dropped: _Optional[int] = ..., stamps_refused: _Optional[int] = ..., sight: _Optional[_Union[Sight, _Mapping]] = ...) -> None: ...

class Wish(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WayOut(_message.Message):
    __slots__ = ("text", "party")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    text: str
    party: str
    def __init__(self, text: _Optional[str] = ..., party: _Optional[str] = ...) -> None: ...

class PartyLook(_message.Message):
    __slots__ = ("party", "unchanged", "deadline", "ways_out", "doubt", "stack", "trace", "interruptible")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    WAYS_OUT_FIELD_NUMBER: _ClassVar[int]
    DOUBT_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    INTERRUPTIBLE_FIELD_NUMBER: _ClassVar[int]
    party: str
    unchanged: bool
    deadline: float
    ways_out: _containers.RepeatedCompositeFieldContainer[WayOut]
    doubt: str
    stack: _containers.RepeatedScalarFieldContainer[str]
    trace: str
    interruptible: bool
    def __init__(self, party: _Optional[str] = ..., unchanged: bool = ..., deadline: _Optional[float] = ..., ways_out: _Optional[_Iterable[_Union[WayOut, _Mapping]]] = ..., doubt: _Optional[str] = ..., stack: _Optional[_Iterable[str]] = ..., trace: _Optional[str] = ..., interruptible: bool = ...) -> None: ...

class Looked(_message.Message):
    __slots__ = ("snapshot", "parties", "happenings", "unaccounted")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    HAPPENINGS_FIELD_NUMBER: _ClassVar[int]
    UNACCOUNTED_FIELD_NUMBER: _ClassVar[int]
    snapshot: int
    parties: _containers.RepeatedCompositeFieldContainer[PartyLook]
    happenings: int
    unaccounted: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, snapshot: _Optional[int] = ..., parties: _Optional[_Iterable[_Union[PartyLook, _Mapping]]] = ..., happenings: _Optional[int] = ..., unaccounted: _Optional[_Iterable[str]] = ...) -> None: ...

class ConnectRequest(_message.Message):
    __slots__ = ("hello", "report", "lease", "wish", "goodbye", "looked")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    WISH_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    LOOKED_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    report: _snapshot_pb2.Report
    lease: Lease
    wish: Wish
    goodbye: Goodbye
    looked: Looked
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., report: _Optional[_Union[_snapshot_pb2.Report, _Mapping]] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ..., wish: _Optional[_Union[Wish, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., looked: _Optional[_Union[Looked, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("detector", "lease_seconds", "report_bytes_max")
    DETECTOR_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REPORT_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    detector: str
    lease_seconds: float
    report_bytes_max: int
    def __init__(self, detector: _Optional[str] = ..., lease_seconds: _Optional[float] = ..., report_bytes_max: _Optional[int] = ...) -> None: ...

class Mark(_message.Message):
    __slots__ = ("snapshot", "settled")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    snapshot: int
    settled: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, snapshot: _Optional[int] = ..., settled: _Optional[_Iterable[int]] = ...) -> None: ...

class Suspect(_message.Message):
    __slots__ = ("party", "waits")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    party: str
    waits: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, party: _Optional[str] = ..., waits: _Optional[_Iterable[int]] = ...) -> None: ...

class Look(_message.Message):
    __slots__ = ("snapshot", "suspects", "activity")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    SUSPECTS_FIELD_NUMBER: _ClassVar[int]
    ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    snapshot: int
    suspects: _containers.RepeatedCompositeFieldContainer[Suspect]
    activity: bool
    def __init__(self, snapshot: _Optional[int] = ..., suspects: _Optional[_Iterable[_Union[Suspect, _Mapping]]] = ..., activity: bool = ...) -> None: ...

class ConnectResponse(_message.Message):
    __slots__ = ("welcome", "mark", "look")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    LOOK_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    mark: Mark
    look: Look
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., mark: _Optional[_Union[Mark, _Mapping]] = ..., look: _Optional[_Union[Look, _Mapping]] = ...) -> None: ...
