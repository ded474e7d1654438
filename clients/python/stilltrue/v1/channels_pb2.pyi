from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AttachRequest(_message.Message):
    __slots__ = ["frame"]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    frame: ChannelFrame
    def __init__(self, frame: _Optional[_Union[ChannelFrame, _Mapping]] = ...) -> None: ...

class AttachResponse(_message.Message):
    __slots__ = ["frame"]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    frame: ChannelFrame
    def __init__(self, frame: _Optional[_Union[ChannelFrame, _Mapping]] = ...) -> None: ...

class ChannelContents(_message.Message):
    __slots__ = ["channel", "messages", "received"]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    channel: ChannelName
    messages: _containers.RepeatedScalarFieldContainer[bytes]
    received: int
    def __init__(self, channel: _Optional[_Union[ChannelName, _Mapping]] = ..., received: _Optional[int] = ..., messages: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ChannelCount(_message.Message):
    __slots__ = ["channel", "sent"]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    channel: ChannelName
    sent: int
    def __init__(self, channel: _Optional[_Union[ChannelName, _Mapping]] = ..., sent: _Optional[int] = ...) -> None: ...

class ChannelFrame(_message.Message):
    __slots__ = ["given_up", "goodbye", "hello", "marker", "message", "record"]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    MARKER_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    given_up: ChannelGivenUp
    goodbye: ChannelGoodbye
    hello: ChannelHello
    marker: ChannelMarker
    message: ChannelMessage
    record: ChannelLocalRecord
    def __init__(self, hello: _Optional[_Union[ChannelHello, _Mapping]] = ..., message: _Optional[_Union[ChannelMessage, _Mapping]] = ..., marker: _Optional[_Union[ChannelMarker, _Mapping]] = ..., record: _Optional[_Union[ChannelLocalRecord, _Mapping]] = ..., given_up: _Optional[_Union[ChannelGivenUp, _Mapping]] = ..., goodbye: _Optional[_Union[ChannelGoodbye, _Mapping]] = ...) -> None: ...

class ChannelGivenUp(_message.Message):
    __slots__ = ["reason", "snapshot"]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    reason: str
    snapshot: int
    def __init__(self, snapshot: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ChannelGoodbye(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ChannelHello(_message.Message):
    __slots__ = ["process", "topology_digest"]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    process: str
    topology_digest: bytes
    def __init__(self, process: _Optional[str] = ..., topology_digest: _Optional[bytes] = ...) -> None: ...

class ChannelLocalRecord(_message.Message):
    __slots__ = ["incoming", "process", "sent", "snapshot", "state"]
    INCOMING_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    incoming: _containers.RepeatedCompositeFieldContainer[ChannelContents]
    process: str
    sent: _containers.RepeatedCompositeFieldContainer[ChannelCount]
    snapshot: int
    state: bytes
    def __init__(self, snapshot: _Optional[int] = ..., process: _Optional[str] = ..., state: _Optional[bytes] = ..., incoming: _Optional[_Iterable[_Union[ChannelContents, _Mapping]]] = ..., sent: _Optional[_Iterable[_Union[ChannelCount, _Mapping]]] = ...) -> None: ...

class ChannelMarker(_message.Message):
    __slots__ = ["name", "snapshot"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    name: str
    snapshot: int
    def __init__(self, name: _Optional[str] = ..., snapshot: _Optional[int] = ...) -> None: ...

class ChannelMessage(_message.Message):
    __slots__ = ["name", "number", "payload"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    name: str
    number: int
    payload: bytes
    def __init__(self, name: _Optional[str] = ..., number: _Optional[int] = ..., payload: _Optional[bytes] = ...) -> None: ...

class ChannelName(_message.Message):
    __slots__ = ["name", "source", "target"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    name: str
    source: str
    target: str
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...
