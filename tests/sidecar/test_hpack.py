"""Header blocks: every encoder's are read, and every decoder reads ours."""

from __future__ import annotations

import random

import hpack
import pytest

from detector.sidecar.http2 import hpack as our_hpack
from detector.sidecar.http2 import huffman as huffman_strings
from detector.sidecar.http2.frames import BrokenFrameError
from detector.sidecar.http2.hpack import HeaderReader, Headers, size_of, write_headers

NAMES = [b":path", b":status", b"te", b"content-type", b"grpc-status", b"x-trace", b"a-bin", b"user-agent"]


def _some_headers(dice: random.Random) -> Headers:
    values = [b"", b"200", b"trailers", b"application/grpc", dice.randbytes(dice.randrange(40)), b"v" * dice.randrange(300)]
    return [(dice.choice(NAMES), dice.choice(values)) for _ in range(dice.randrange(1, 12))]


@pytest.mark.parametrize("seed", range(20))
def test_blocks_of_another_encoder_are_read_in_order(seed: int) -> None:
    """With indexing, Huffman coding and a table that changes its size, block after block."""
    dice = random.Random(seed)
    encoder, reader = hpack.Encoder(), HeaderReader()
    for _ in range(200):
        headers = _some_headers(dice)
        if dice.random() < 0.05:
            encoder.header_table_size = dice.choice((0, 100, 4096))
        assert reader.read(encoder.encode(headers, huffman=dice.random() < 0.5)) == headers


@pytest.mark.parametrize("seed", range(5))
def test_another_decoder_reads_our_blocks(seed: int) -> None:
    dice = random.Random(seed)
    decoder = hpack.Decoder()
    for _ in range(200):
        headers = _some_headers(dice)
        assert [tuple(pair) for pair in decoder.decode(write_headers(headers), raw=True)] == headers


def test_equal_blocks_mean_other_headers_once_the_table_has_changed() -> None:
    encoder, reader = hpack.Encoder(), HeaderReader()
    first = encoder.encode([(b"x", b"1")])
    assert reader.read(first) == [(b"x", b"1")]
    newest = b"\xbe"  # whatever was put into the table last
    assert reader.read(newest) == [(b"x", b"1")]
    reader.read(encoder.encode([(b"y", b"2")]))
    assert reader.read(newest) == [(b"y", b"2")]


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",
        b"\xff",
        b"\xfe",
        b"\x40\x05abc",
        b"\x00\x01a\x7f\xff\xff\xff\xff\xff\x01",
        b"\x3f\xe2\x1f",
        b"\x00\x01a\x81\x00",
        b"\x00\x01a\x05abc",
        b"\x00\x05abc",
    ],
    ids=[
        "index 0",
        "cut short",
        "no such entry",
        "short string",
        "endless number",
        "table too large",
        "bad Huffman",
        "short value",
        "short name",
    ],
)
def test_a_malformed_block_is_refused(block: bytes) -> None:
    with pytest.raises(BrokenFrameError):
        HeaderReader().read(block)


def test_a_header_list_that_is_too_long_is_refused() -> None:
    block = write_headers([(b"k", b"v" * 60_000)])
    with pytest.raises(BrokenFrameError, match="too long"):
        HeaderReader().read(20 * block)


def test_the_size_of_a_header_list_is_counted_by_the_rfc() -> None:
    assert size_of([(b"abc", b"de"), (b"", b"")]) == 5 + 32 + 32


@pytest.mark.longer
def test_long_blocks_are_not_cached() -> None:
    """Anybody may send a thousand headers of a megabyte, each another."""
    encoder, reader = hpack.Encoder(), HeaderReader()
    encoder.header_table_size = 0
    for at in range(50):
        pair = (b"x-trace", b"%d-" % at + b"long" * 5000)
        for huffman in (True, False):
            block = encoder.encode([pair], huffman=huffman)
            assert reader.read(block) == [pair]
        assert HeaderReader().read(write_headers([pair])) == [pair]
    assert max(map(len, our_hpack._WRITTEN.values()), default=0) <= our_hpack.WRITTEN_BYTES_MAX
    assert max(map(len, huffman_strings.CACHE), default=0) <= huffman_strings.CACHED_BYTES_MAX
    assert max(map(len, reader._known), default=0) <= our_hpack.KNOWN_BYTES_MAX


def test_the_cache_of_short_blocks_is_bounded() -> None:
    encoder, reader = hpack.Encoder(), HeaderReader()
    for at in range(max(our_hpack.WRITTEN_MAX, huffman_strings.CACHE_MAX) + 10):
        pair = (b"x-trace", b"short-%d" % at)
        assert reader.read(encoder.encode([pair], huffman=True)) == [pair]
        assert write_headers([pair]) == write_headers([pair])
        assert our_hpack._WRITTEN[pair] == write_headers([pair])
    assert len(our_hpack._WRITTEN) <= our_hpack.WRITTEN_MAX
    assert len(huffman_strings.CACHE) <= huffman_strings.CACHE_MAX
