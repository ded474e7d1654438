"""The relay, frame by frame: what passes unchanged, is rewritten or refused, and which events it reports."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from detector.ops.address import Address, AddressError, parse_address
from detector.sidecar.failures import RelayFailure
from detector.sidecar.http2 import connection, frames
from detector.sidecar.http2.hpack import HeaderReader, Headers, write_headers
from detector.sidecar.http2.messages import MessageCounter
from detector.sidecar.http2.relay import Relay
from detector.sidecar.routing import Upstreams, upstream_of

REQUEST = [(b":method", b"POST"), (b":path", b"/s/M"), (b"content-type", b"application/grpc")]


class Wire:
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        self.written = b""
        self.closing = False
        self.reading = True

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_extra_info(self, name: str) -> tuple[str, int]:
        assert name == "peername"
        return "192.0.2.7", 50000

    def take(self) -> list[tuple[int, int, int, bytes]]:
        """The frames written since the last look: kind, flags, stream, payload."""
        data, self.written = self.written.removeprefix(frames.PREFACE), b""
        found = []
        while data:
            length = int.from_bytes(data[:3], "big")
            found.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + length]))
            data = data[9 + length :]
        return found


class Followed:
    """A call that records its events."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def request_message(self, count: int) -> None:
        self.told.append(f"request {count}")

    def request_ended(self) -> None:
        self.told.append("asked")

    def reply_begun(self) -> None:
        self.told.append("answering")

    def reply_message(self, count: int) -> None:
        self.told.append(f"reply {count}")

    def server_leaves(self) -> None:
        self.told.append("may end")

    def trailers(self, headers: Headers, limit: int | None) -> Headers:
        self.told.append("trailers")
        return [*headers, (b"ours", b"1")]

    def broken(self, *, by_caller: bool) -> None:
        self.told.append(f"broken by {'caller' if by_caller else 'server'}")


class Joined:
    """A relay between two wires, and its own way and observer."""

    direction = "inbound"
    address = None
    tls = None

    def __init__(self, refusal: str = "") -> None:
        self.refusal = refusal
        self.calls: list[Followed] = []
        self.warnings: list[str | RelayFailure] = []
        self.relay = Relay(self, fault=self.warnings.append, warn=self.warnings.append, closed=lambda _: None)
        self.caller, self.server = Wire(), Wire()
        self.relay.caller.connection_made(self.caller)  # type: ignore[arg-type]
        self.relay.server.connection_made(self.server)  # type: ignore[arg-type]

    def begin(self, relay: Relay) -> None:
        pass

    def choose(self, relay: Relay, headers: Headers) -> Any:
        return self.refusal or self

    def opened(self, headers: Headers, limit: int | None) -> tuple[Headers, Followed]:
        self.calls.append(Followed())
        return [*headers, (b"stamp", b"7")], self.calls[-1]

    def stripped(self, headers: Headers) -> Headers:
        return headers

    def from_caller(self, data: bytes) -> None:
        self.relay.caller.data_received(data)

    def from_server(self, data: bytes) -> None:
        self.relay.server.data_received(data)


@pytest.fixture
def joined() -> Joined:
    joined = Joined()
    joined.from_caller(frames.PREFACE)
    return joined


def _headers(payload: bytes) -> Headers:
    return HeaderReader().read(payload)


def _message(length: int) -> bytes:
    return b"\x00" + length.to_bytes(4, "big") + bytes(length)


def test_a_call_passes_with_stamps_and_its_observer_sees_every_event(joined: Joined) -> None:
    joined.from_caller(frames.header_frames(1, write_headers(REQUEST), ends=False))
    ((kind, flags, stream, payload),) = joined.server.take()
    assert (kind, flags, stream) == (frames.HEADERS, frames.END_HEADERS, 1)
    assert _headers(payload) == [*REQUEST, (b"stamp", b"7")]
    data = frames.frame(frames.DATA, frames.END_STREAM, 1, _message(3))
    joined.from_caller(data)
    assert joined.server.written == data
    joined.from_server(frames.header_frames(1, write_headers([(b":status", b"200")]), ends=False))
    joined.from_server(frames.frame(frames.DATA, 0, 1, _message(2)))
    joined.from_server(frames.header_frames(1, write_headers([(b"grpc-status", b"0")]), ends=True))
    replied = joined.caller.take()
    assert [frame[:3] for frame in replied] == [
        (frames.HEADERS, frames.END_HEADERS, 1),
        (frames.DATA, 0, 1),
        (frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1),
    ]
    assert _headers(replied[2][3]) == [(b"grpc-status", b"0"), (b"ours", b"1")]
    assert joined.calls[0].told == ["request 1", "asked", "answering", "reply 1", "trailers"]
    assert joined.relay.streams == {}


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_bytes_may_arrive_in_any_pieces(cut: int) -> None:
    joined = Joined()
    sent = frames.PREFACE + frames.settings_frame([(4, 100_000)])
    sent += frames.header_frames(1, write_headers(REQUEST), ends=False)
    sent += frames.frame(frames.DATA, 0, 1, _message(5)) + frames.frame(frames.DATA, frames.END_STREAM, 1, _message(9))
    for at in range(0, len(sent), cut):
        joined.from_caller(sent[at : at + cut])
    assert [frame[0] for frame in joined.server.take()] == [frames.SETTINGS, frames.HEADERS, frames.DATA, frames.DATA]
    assert joined.calls[0].told == ["request 1", "request 2", "asked"]


def test_long_headers_are_read_and_written_in_pieces(joined: Joined) -> None:
    headers = [*REQUEST, (b"long", bytes(range(33, 126)) * 500)]
    joined.from_caller(frames.header_frames(1, write_headers(headers), ends=True))
    passed = joined.server.take()
    assert [frame[0] for frame in passed] == [frames.HEADERS, frames.CONTINUATION, frames.CONTINUATION]
    assert all(len(frame[3]) <= frames.FRAME_BYTES_MAX for frame in passed)
    assert _headers(b"".join(frame[3] for frame in passed)) == [*headers, (b"stamp", b"7")]


def test_padding_and_priority_of_headers_are_left_out(joined: Joined) -> None:
    block = write_headers(REQUEST)
    payload = bytes([4]) + bytes(5) + block + bytes(4)
    joined.from_caller(frames.frame(frames.HEADERS, frames.PADDED | frames.PRIORITY | frames.END_HEADERS, 1, payload))
    ((_, flags, _, payload),) = joined.server.take()
    assert flags == frames.END_HEADERS
    assert _headers(payload) == [*REQUEST, (b"stamp", b"7")]


def test_frames_between_the_peers_pass_unchanged(joined: Joined) -> None:
    for other in (
        frames.window_update(0, 77),
        frames.frame(6, 0, 0, b"12345678"),
        frames.goaway(9, "bye"),
        frames.frame(0xFA, 7, 3, b"?"),
    ):
        joined.from_caller(other)
        assert joined.server.written.removeprefix(frames.PREFACE) == other
        joined.server.take()
        joined.from_server(other)
        assert joined.caller.written == other
        joined.caller.take()


def test_settings_pass_except_for_the_header_table_size(joined: Joined) -> None:
    joined.from_server(frames.settings_frame([(1, 65536), (3, 100), (6, 8192)]))
    assert joined.caller.written == frames.settings_frame([(3, 100), (6, 8192)])
    assert joined.relay.server.list_bytes_max == 8192


@pytest.mark.parametrize("by_caller", [True, False])
def test_a_reset_passes_and_breaks_the_call(joined: Joined, by_caller: bool) -> None:
    joined.from_caller(frames.header_frames(1, write_headers(REQUEST), ends=True))
    joined.server.take()
    send, wire = (joined.from_caller, joined.server) if by_caller else (joined.from_server, joined.caller)
    send(frames.reset(1, frames.ErrorCode.CANCEL))
    assert wire.written == frames.reset(1, frames.ErrorCode.CANCEL)
    assert joined.calls[0].told[-1] == f"broken by {'caller' if by_caller else 'server'}"
    assert joined.relay.streams == {}


@pytest.mark.parametrize("by_caller", [True, False])
def test_calls_on_a_connection_that_the_server_is_closing_may_be_ended_by_it(joined: Joined, by_caller: bool) -> None:
    joined.from_caller(frames.header_frames(1, write_headers(REQUEST), ends=True))
    joined.server.take()
    send, wire = (joined.from_caller, joined.server) if by_caller else (joined.from_server, joined.caller)
    send(frames.goaway(frames.FRAME_BYTES_MAX, "max_age") * 2)
    assert wire.written == frames.goaway(frames.FRAME_BYTES_MAX, "max_age") * 2
    joined.from_caller(frames.header_frames(3, write_headers(REQUEST), ends=True))
    assert [call.told.count("may end") for call in joined.calls] == ([0, 0] if by_caller else [1, 1])


def test_calls_are_ended_by_a_sidecar_that_stops(joined: Joined) -> None:
    joined.from_caller(frames.header_frames(1, write_headers(REQUEST), ends=True))
    joined.relay.drain()
    assert joined.calls[0].told[-1] == "may end"


def test_trailers_that_cross_a_reset_still_pass_through_the_table(joined: Joined) -> None:
    joined.from_caller(frames.header_frames(1, write_headers(REQUEST), ends=True))
    joined.from_caller(frames.reset(1, frames.ErrorCode.CANCEL))
    joined.from_server(frames.header_frames(1, b"\x40\x01a\x01b", ends=True))
    joined.from_caller(frames.header_frames(3, write_headers(REQUEST), ends=True))
    joined.caller.take()
    joined.from_server(frames.header_frames(3, b"\xbe", ends=True))
    ((_, _, _, payload),) = joined.caller.take()
    assert _headers(payload) == [(b"a", b"b"), (b"ours", b"1")]


def test_a_lost_connection_closes_the_other_one(joined: Joined) -> None:
    joined.from_caller(frames.header_frames(1, write_headers(REQUEST), ends=True))
    joined.relay.server.connection_lost(None)
    assert joined.caller.closing
    assert joined.calls[0].told == ["asked", "broken by server"]


def test_a_call_that_cannot_proceed_is_answered_like_grpc_does() -> None:
    joined = Joined("no way: 100 %")
    joined.from_caller(frames.PREFACE + frames.header_frames(1, write_headers(REQUEST), ends=False))
    joined.from_caller(frames.frame(frames.DATA, frames.END_STREAM, 1, b"12345"))
    answer, reset, window = joined.caller.take()
    assert dict(_headers(answer[3])) == {
        b":status": b"200",
        b"content-type": b"application/grpc",
        b"grpc-status": b"14",
        b"grpc-message": b"no way: 100 %25",
    }
    assert reset[:1] == (frames.RST_STREAM,)
    assert window == (frames.WINDOW_UPDATE, 0, 0, (5).to_bytes(4, "big"))
    assert joined.server.take() == []
    assert joined.relay.refused == set()


def test_reading_pauses_while_the_other_end_reads_slowly(joined: Joined) -> None:
    joined.relay.server.pause_writing()
    assert (joined.caller.reading, joined.server.reading) == (False, True)
    joined.relay.server.resume_writing()
    assert joined.caller.reading


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        frames.PREFACE + frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, b"\x82"),
        frames.PREFACE + frames.frame(frames.HEADERS, 0, 1, b"\x82") + frames.window_update(0, 1),
        frames.PREFACE + frames.frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
        frames.PREFACE + frames.frame(frames.HEADERS, frames.END_HEADERS | frames.PADDED, 1, b"\x09a"),
        frames.PREFACE + frames.frame(frames.PUSH_PROMISE, 0, 1, b"\x00\x00\x00\x02"),
        frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0, b"\x00"),
    ],
    ids=["HTTP/1", "CONTINUATION alone", "block cut off", "bad block", "padding", "push", "settings"],
)
def test_a_peer_that_breaks_the_protocol_is_disconnected(sent: bytes) -> None:
    joined = Joined()
    joined.from_caller(sent)
    assert joined.caller.closing
    assert joined.server.closing
    assert len(joined.warnings) == 1


@pytest.mark.parametrize("announced", [frames.FRAME_BYTES_MAX, 20_000])
def test_a_frame_is_at_most_as_long_as_the_other_side_has_announced(joined: Joined, announced: int) -> None:
    """Else anybody may have 16 MB of each connection kept."""
    joined.from_server(frames.settings_frame([(frames.MAX_FRAME_SIZE, announced)]))
    whole = frames.frame(frames.DATA, 0, 1, bytes(announced))
    for at in range(0, len(whole), 1000):
        joined.from_caller(whole[at : at + 1000])
    assert joined.server.take() == [(frames.DATA, 0, 1, bytes(announced))]
    assert not joined.caller.closing
    joined.from_caller(frames.frame(frames.DATA, 0, 1, bytes(announced + 1))[: frames.HEAD_BYTES])
    assert (joined.caller.closing, joined.server.closing) == (True, True)
    text = f"a connection from the caller was closed: a frame of {announced + 1} bytes exceeds the limit of {announced}"
    assert joined.warnings == [RelayFailure(direction="inbound", peer="192.0.2.7", text=text)]


def test_an_announced_setting_binds_only_the_other_side(joined: Joined) -> None:
    joined.from_caller(frames.settings_frame([(frames.MAX_FRAME_SIZE, 2**24 - 1)]))
    joined.from_server(frames.frame(frames.DATA, 0, 1, bytes(20_000)))
    assert not joined.server.closing
    joined.from_caller(frames.frame(frames.DATA, 0, 1, bytes(20_000)))
    assert joined.caller.closing


def test_the_pieces_of_a_header_block_are_joined_once(joined: Joined, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece may be empty: nine bytes, for which a block of a megabyte was copied."""
    copies = []

    class Counted(bytearray):
        def __bytes__(self) -> bytes:
            copies.append(len(self))
            return b"".join([self])

    monkeypatch.setattr(connection, "bytearray", Counted, raising=False)
    block = write_headers([*REQUEST, (b"long", bytes(20_000))])
    joined.from_caller(frames.frame(frames.HEADERS, frames.END_STREAM, 1, block[:10_000]))
    for _ in range(100):
        joined.from_caller(frames.frame(frames.CONTINUATION, 0, 1))
    assert joined.server.take() == []
    joined.from_caller(frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[10_000:]))
    payload = b"".join(payload for _, _, _, payload in joined.server.take())
    assert _headers(payload) == [*REQUEST, (b"long", bytes(20_000)), (b"stamp", b"7")]
    assert copies == [len(block)]


def test_a_failing_observer_breaks_no_call(joined: Joined) -> None:
    def fails(headers: Headers, limit: int | None) -> Any:
        raise RuntimeError

    joined.opened = fails  # type: ignore[method-assign]
    joined.from_caller(frames.header_frames(1, write_headers(REQUEST), ends=True))
    ((_, _, _, payload),) = joined.server.take()
    assert _headers(payload) == REQUEST
    assert joined.warnings == ["opening a call"]


@pytest.mark.parametrize("cut", [1, 2, 4, 5, 7, 100])
def test_messages_are_counted_in_any_pieces(cut: int) -> None:
    content = _message(0) + _message(6) + _message(0) + _message(300)
    counter = MessageCounter()
    counts = [counter.feed(content[at : at + cut]) for at in range(0, len(content), cut)]
    assert sum(counts) == counter.count == 4


# -- where outbound calls go -------------------------------------------------------------------------------------------

STOCK, BANK, REST = (Address(host=name, port=5) for name in ("stock.svc", "bank.svc", "rest.svc"))
OURSELVES = Address(host="127.0.0.1", port=15001)


@pytest.mark.parametrize(
    ("authority", "by_authority", "found"),
    [
        ("stock", False, STOCK),
        ("stock:15001", False, STOCK),
        ("bank:9", True, Address(host="bank", port=9)),
        ("bank", True, Address(host="bank", port=80)),
        ("[::1]:9", True, Address(host="::1", port=9)),
        ("127.0.0.1:9", True, Address(host="127.0.0.1", port=9)),
    ],
)
def test_an_authority_leads_to_its_upstream(authority: str, by_authority: bool, found: Address) -> None:
    assert Upstreams(named={"stock": STOCK}, by_authority=by_authority).find(authority, OURSELVES) == found


@pytest.mark.parametrize("authority", ["bank", "", "localhost:15001", "127.0.0.1:15001"])
def test_an_authority_that_leads_nowhere_or_back_is_refused(authority: str) -> None:
    by_authority = "15001" in authority
    with pytest.raises(AddressError):
        Upstreams(named={"stock": STOCK}, by_authority=by_authority).find(authority, OURSELVES)


def test_an_upstream_without_a_name_takes_the_rest() -> None:
    name, address = upstream_of("rest.svc:5")
    upstreams = Upstreams(named={"stock": STOCK, name: address})
    assert upstreams.find("whoever:1", OURSELVES) == REST
    assert upstreams.only is None
    assert Upstreams(named={name: address}).only == REST


@pytest.mark.parametrize("text", ["", ":5", "host", "host:", "host:x", "host:70000", "[::1]", "::1", "a:1:2"])
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(AddressError, match=r"not a valid HOST:PORT|must be between"):
        parse_address(text)


async def test_calls_of_one_program_go_to_many_upstreams_by_authority(program: str, start_sidecar: Any) -> None:
    upstreams = Upstreams(named={"mix": parse_address(program), "gone": parse_address("127.0.0.1:1")})
    async with start_sidecar(program, upstreams=upstreams) as (sidecar, listening):

        async def call(authority: str) -> Any:
            options = (("grpc.default_authority", authority),)
            async with grpc.aio.insecure_channel(str(listening.outbound), options) as channel:
                unary: Any = channel.unary_unary("/mix.Mix/Unary")
                return await unary(b"hello", timeout=10)

        assert await asyncio.gather(*(call("mix") for _ in range(5))) == 5 * [b"hello"]
        for authority, says in (("gone", "127.0.0.1:1 cannot be reached"), ("nobody", "no upstream is named 'nobody'")):
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await call(authority)
            assert failure.value.code() is grpc.StatusCode.UNAVAILABLE
            assert says in str(failure.value.details())
        assert sidecar.agent.live.faults == 0
