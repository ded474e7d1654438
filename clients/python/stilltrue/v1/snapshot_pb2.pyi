from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

ACTIVITY_ACTIVE: Activity
ACTIVITY_BLOCKED: Activity
ACTIVITY_IDLE: Activity
ACTIVITY_UNSPECIFIED: Activity
DESCRIPTOR: _descriptor.FileDescriptor
HOLDS_FALSE: Holds
HOLDS_TRUE: Holds
HOLDS_UNDETERMINED: Holds
HOLDS_UNSPECIFIED: Holds

class Answered(_message.Message):
    __slots__ = ["facts", "number", "received", "sent", "untaken"]
    class FactsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Fact
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Fact, _Mapping]] = ...) -> None: ...
    FACTS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    UNTAKEN_FIELD_NUMBER: _ClassVar[int]
    facts: _containers.MessageMap[str, Fact]
    number: int
    received: int
    sent: int
    untaken: bool
    def __init__(self, number: _Optional[int] = ..., sent: _Optional[int] = ..., received: _Optional[int] = ..., facts: _Optional[_Mapping[str, Fact]] = ..., untaken: bool = ...) -> None: ...

class BlindSpot(_message.Message):
    __slots__ = ["process", "reasons"]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    process: str
    reasons: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, process: _Optional[str] = ..., reasons: _Optional[_Iterable[str]] = ...) -> None: ...

class CallMade(_message.Message):
    __slots__ = ["copies_max", "deadline", "doubtful", "facts", "hedged", "method", "number", "party", "received", "sent", "servers", "since", "strangers", "target"]
    class FactsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Fact
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Fact, _Mapping]] = ...) -> None: ...
    class ServersEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    COPIES_MAX_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    DOUBTFUL_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    HEDGED_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    STRANGERS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    copies_max: int
    deadline: float
    doubtful: bool
    facts: _containers.MessageMap[str, Fact]
    hedged: bool
    method: str
    number: int
    party: str
    received: int
    sent: int
    servers: _containers.ScalarMap[str, int]
    since: float
    strangers: bool
    target: str
    def __init__(self, number: _Optional[int] = ..., method: _Optional[str] = ..., target: _Optional[str] = ..., servers: _Optional[_Mapping[str, int]] = ..., strangers: bool = ..., party: _Optional[str] = ..., since: _Optional[float] = ..., deadline: _Optional[float] = ..., sent: _Optional[int] = ..., received: _Optional[int] = ..., facts: _Optional[_Mapping[str, Fact]] = ..., doubtful: bool = ..., copies_max: _Optional[int] = ..., hedged: bool = ...) -> None: ...

class CallServed(_message.Message):
    __slots__ = ["caller", "deadline", "hung_up", "interruptible", "method", "number", "party", "pool", "received", "sent", "serving", "since", "taken"]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    HUNG_UP_FIELD_NUMBER: _ClassVar[int]
    INTERRUPTIBLE_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    deadline: float
    hung_up: bool
    interruptible: bool
    method: str
    number: int
    party: str
    pool: str
    received: int
    sent: int
    serving: bool
    since: float
    taken: bool
    def __init__(self, party: _Optional[str] = ..., method: _Optional[str] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., number: _Optional[int] = ..., serving: bool = ..., pool: _Optional[str] = ..., since: _Optional[float] = ..., deadline: _Optional[float] = ..., sent: _Optional[int] = ..., received: _Optional[int] = ..., taken: bool = ..., interruptible: bool = ..., hung_up: bool = ...) -> None: ...

class Caller(_message.Message):
    __slots__ = ["incarnation", "process"]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    process: str
    def __init__(self, process: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Connection(_message.Message):
    __slots__ = ["begun", "ended", "name", "socket"]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOCKET_FIELD_NUMBER: _ClassVar[int]
    begun: int
    ended: int
    name: str
    socket: int
    def __init__(self, name: _Optional[str] = ..., socket: _Optional[int] = ..., begun: _Optional[int] = ..., ended: _Optional[int] = ...) -> None: ...

class Coverage(_message.Message):
    __slots__ = ["blind", "expected", "members", "partly"]
    BLIND_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    PARTLY_FIELD_NUMBER: _ClassVar[int]
    blind: _containers.RepeatedCompositeFieldContainer[BlindSpot]
    expected: int
    members: int
    partly: _containers.RepeatedCompositeFieldContainer[BlindSpot]
    def __init__(self, members: _Optional[int] = ..., expected: _Optional[int] = ..., blind: _Optional[_Iterable[_Union[BlindSpot, _Mapping]]] = ..., partly: _Optional[_Iterable[_Union[BlindSpot, _Mapping]]] = ...) -> None: ...

class Evidence(_message.Message):
    __slots__ = ["party", "stack", "trace"]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    party: str
    stack: _containers.RepeatedScalarFieldContainer[str]
    trace: str
    def __init__(self, party: _Optional[str] = ..., stack: _Optional[_Iterable[str]] = ..., trace: _Optional[str] = ...) -> None: ...

class Fact(_message.Message):
    __slots__ = ["real", "text", "truth", "whole"]
    REAL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TRUTH_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    real: float
    text: str
    truth: bool
    whole: int
    def __init__(self, whole: _Optional[int] = ..., real: _Optional[float] = ..., text: _Optional[str] = ..., truth: bool = ...) -> None: ...

class HeldUp(_message.Message):
    __slots__ = ["connection", "full", "parties", "what"]
    CONNECTION_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    connection: Connection
    full: bool
    parties: _containers.RepeatedScalarFieldContainer[str]
    what: str
    def __init__(self, connection: _Optional[_Union[Connection, _Mapping]] = ..., parties: _Optional[_Iterable[str]] = ..., full: bool = ..., what: _Optional[str] = ...) -> None: ...

class Hold(_message.Message):
    __slots__ = ["capacity", "party", "resource"]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    capacity: int
    party: str
    resource: str
    def __init__(self, party: _Optional[str] = ..., resource: _Optional[str] = ..., capacity: _Optional[int] = ...) -> None: ...

class LocalWait(_message.Message):
    __slots__ = ["among", "deadline", "needs", "number", "since", "uncoloured", "waiter", "what"]
    AMONG_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    NEEDS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNCOLOURED_FIELD_NUMBER: _ClassVar[int]
    WAITER_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    among: _containers.RepeatedCompositeFieldContainer[Target]
    deadline: float
    needs: int
    number: int
    since: float
    uncoloured: bool
    waiter: str
    what: str
    def __init__(self, waiter: _Optional[str] = ..., number: _Optional[int] = ..., among: _Optional[_Iterable[_Union[Target, _Mapping]]] = ..., needs: _Optional[int] = ..., deadline: _Optional[float] = ..., since: _Optional[float] = ..., uncoloured: bool = ..., what: _Optional[str] = ...) -> None: ...

class Pool(_message.Message):
    __slots__ = ["name", "queued", "size"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    name: str
    queued: int
    size: int
    def __init__(self, name: _Optional[str] = ..., size: _Optional[int] = ..., queued: _Optional[int] = ...) -> None: ...

class ProcessId(_message.Message):
    __slots__ = ["incarnation", "instance", "service"]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    instance: str
    service: str
    def __init__(self, service: _Optional[str] = ..., instance: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ["activity", "after", "cut_at", "facts", "happenings", "held_up", "holds", "labels", "lost", "made", "next_number", "pools", "process", "seen", "sent_over", "served", "snapshot", "waits"]
    class FactsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Fact
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Fact, _Mapping]] = ...) -> None: ...
    class LabelsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    CUT_AT_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    HAPPENINGS_FIELD_NUMBER: _ClassVar[int]
    HELD_UP_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    MADE_FIELD_NUMBER: _ClassVar[int]
    NEXT_NUMBER_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    SENT_OVER_FIELD_NUMBER: _ClassVar[int]
    SERVED_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    activity: Activity
    after: int
    cut_at: float
    facts: _containers.MessageMap[str, Fact]
    happenings: int
    held_up: _containers.RepeatedCompositeFieldContainer[HeldUp]
    holds: _containers.RepeatedCompositeFieldContainer[Hold]
    labels: _containers.ScalarMap[str, str]
    lost: int
    made: _containers.RepeatedCompositeFieldContainer[CallMade]
    next_number: int
    pools: _containers.RepeatedCompositeFieldContainer[Pool]
    process: ProcessId
    seen: _containers.RepeatedCompositeFieldContainer[Seen]
    sent_over: _containers.RepeatedCompositeFieldContainer[SentOver]
    served: _containers.RepeatedCompositeFieldContainer[CallServed]
    snapshot: int
    waits: _containers.RepeatedCompositeFieldContainer[LocalWait]
    def __init__(self, process: _Optional[_Union[ProcessId, _Mapping]] = ..., snapshot: _Optional[int] = ..., after: _Optional[int] = ..., cut_at: _Optional[float] = ..., next_number: _Optional[int] = ..., activity: _Optional[_Union[Activity, str]] = ..., made: _Optional[_Iterable[_Union[CallMade, _Mapping]]] = ..., served: _Optional[_Iterable[_Union[CallServed, _Mapping]]] = ..., seen: _Optional[_Iterable[_Union[Seen, _Mapping]]] = ..., pools: _Optional[_Iterable[_Union[Pool, _Mapping]]] = ..., waits: _Optional[_Iterable[_Union[LocalWait, _Mapping]]] = ..., holds: _Optional[_Iterable[_Union[Hold, _Mapping]]] = ..., facts: _Optional[_Mapping[str, Fact]] = ..., labels: _Optional[_Mapping[str, str]] = ..., lost: _Optional[int] = ..., happenings: _Optional[int] = ..., sent_over: _Optional[_Iterable[_Union[SentOver, _Mapping]]] = ..., held_up: _Optional[_Iterable[_Union[HeldUp, _Mapping]]] = ...) -> None: ...

class Seen(_message.Message):
    __slots__ = ["answered", "caller", "floor", "forgotten", "highest", "plain"]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_FIELD_NUMBER: _ClassVar[int]
    PLAIN_FIELD_NUMBER: _ClassVar[int]
    answered: _containers.RepeatedCompositeFieldContainer[Answered]
    caller: Caller
    floor: int
    forgotten: int
    highest: int
    plain: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., highest: _Optional[int] = ..., forgotten: _Optional[int] = ..., plain: _Optional[_Iterable[int]] = ..., answered: _Optional[_Iterable[_Union[Answered, _Mapping]]] = ..., floor: _Optional[int] = ...) -> None: ...

class SentOver(_message.Message):
    __slots__ = ["call", "connections"]
    CALL_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    call: int
    connections: _containers.RepeatedCompositeFieldContainer[Connection]
    def __init__(self, call: _Optional[int] = ..., connections: _Optional[_Iterable[_Union[Connection, _Mapping]]] = ...) -> None: ...

class SnapshotRef(_message.Message):
    __slots__ = ["begun", "ended", "id", "members", "scope"]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    begun: float
    ended: float
    id: int
    members: int
    scope: str
    def __init__(self, id: _Optional[int] = ..., scope: _Optional[str] = ..., begun: _Optional[float] = ..., ended: _Optional[float] = ..., members: _Optional[int] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ["call", "party", "resource", "served"]
    CALL_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    SERVED_FIELD_NUMBER: _ClassVar[int]
    call: int
    party: str
    resource: str
    served: str
    def __init__(self, party: _Optional[str] = ..., call: _Optional[int] = ..., resource: _Optional[str] = ..., served: _Optional[str] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ["assumptions", "behind", "core", "coverage", "decisive", "evidence", "explanation", "holds", "missing", "predicate", "remainder", "snapshot", "until", "victims", "witness"]
    ASSUMPTIONS_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    CORE_FIELD_NUMBER: _ClassVar[int]
    COVERAGE_FIELD_NUMBER: _ClassVar[int]
    DECISIVE_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    PREDICATE_FIELD_NUMBER: _ClassVar[int]
    REMAINDER_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    VICTIMS_FIELD_NUMBER: _ClassVar[int]
    WITNESS_FIELD_NUMBER: _ClassVar[int]
    assumptions: _containers.RepeatedScalarFieldContainer[str]
    behind: _containers.RepeatedScalarFieldContainer[str]
    core: _containers.RepeatedScalarFieldContainer[str]
    coverage: Coverage
    decisive: _containers.RepeatedScalarFieldContainer[str]
    evidence: _containers.RepeatedCompositeFieldContainer[Evidence]
    explanation: _containers.RepeatedScalarFieldContainer[str]
    holds: Holds
    missing: _containers.RepeatedScalarFieldContainer[str]
    predicate: str
    remainder: _containers.RepeatedScalarFieldContainer[str]
    snapshot: SnapshotRef
    until: float
    victims: _containers.RepeatedScalarFieldContainer[str]
    witness: Witness
    def __init__(self, predicate: _Optional[str] = ..., holds: _Optional[_Union[Holds, str]] = ..., witness: _Optional[_Union[Witness, _Mapping]] = ..., snapshot: _Optional[_Union[SnapshotRef, _Mapping]] = ..., remainder: _Optional[_Iterable[str]] = ..., core: _Optional[_Iterable[str]] = ..., behind: _Optional[_Iterable[str]] = ..., missing: _Optional[_Iterable[str]] = ..., decisive: _Optional[_Iterable[str]] = ..., until: _Optional[float] = ..., explanation: _Optional[_Iterable[str]] = ..., victims: _Optional[_Iterable[str]] = ..., evidence: _Optional[_Iterable[_Union[Evidence, _Mapping]]] = ..., assumptions: _Optional[_Iterable[str]] = ..., coverage: _Optional[_Union[Coverage, _Mapping]] = ...) -> None: ...

class Witness(_message.Message):
    __slots__ = ["kind", "parties", "text"]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    parties: _containers.RepeatedScalarFieldContainer[str]
    text: str
    def __init__(self, kind: _Optional[str] = ..., parties: _Optional[_Iterable[str]] = ..., text: _Optional[str] = ...) -> None: ...

class Activity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class Holds(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
