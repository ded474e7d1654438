from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AgentEnded(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class AgentOpened(_message.Message):
    __slots__ = ["names", "peer", "token"]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    peer: str
    token: str
    def __init__(self, peer: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., token: _Optional[str] = ...) -> None: ...

class CloseAgent(_message.Message):
    __slots__ = ["status", "text"]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    status: int
    text: str
    def __init__(self, status: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class FromAgent(_message.Message):
    __slots__ = ["agent", "ended", "message", "opened"]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    agent: int
    ended: AgentEnded
    message: bytes
    opened: AgentOpened
    def __init__(self, agent: _Optional[int] = ..., opened: _Optional[_Union[AgentOpened, _Mapping]] = ..., message: _Optional[bytes] = ..., ended: _Optional[_Union[AgentEnded, _Mapping]] = ...) -> None: ...

class RelayRequest(_message.Message):
    __slots__ = ["events"]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[FromAgent]
    def __init__(self, events: _Optional[_Iterable[_Union[FromAgent, _Mapping]]] = ...) -> None: ...

class RelayResponse(_message.Message):
    __slots__ = ["events", "pending_snapshots_max"]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    PENDING_SNAPSHOTS_MAX_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[ToAgent]
    pending_snapshots_max: int
    def __init__(self, events: _Optional[_Iterable[_Union[ToAgent, _Mapping]]] = ..., pending_snapshots_max: _Optional[int] = ...) -> None: ...

class ToAgent(_message.Message):
    __slots__ = ["agent", "close", "message"]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    agent: int
    close: CloseAgent
    message: bytes
    def __init__(self, agent: _Optional[int] = ..., message: _Optional[bytes] = ..., close: _Optional[_Union[CloseAgent, _Mapping]] = ...) -> None: ...
