"""Stamp keys: a stamp is accepted only if it has the fleet's tag for this call, so strangers cannot forge one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.protocol.stamp import METADATA_KEY, decode
from stilltrue.protocol.stamp_tag import StampKeyError, StampTags
from stilltrue.runtime.membership.stamp_keys import StampKeys
from stilltrue.settings import SettingRefusedError
from tests.client.shells import SHELLS, World, make_world

Alone = Callable[..., Agent]
OLD, NEW = "the-old-key-of-the-fleet", "the-new-key-of-the-fleet"
STAMP = "orders;7;3;2;1"


@pytest.fixture(params=SHELLS)
def keyed(request: pytest.FixtureRequest, alone: Alone) -> Iterator[World]:
    world = make_world(request.param, partial(alone, stamp_key=OLD))
    world.go.set()
    yield world
    world.settle()
    world.close()


def address_of_server(world: World) -> str:
    return world.addresses[world.server]


def test_callers_with_the_key_know_each_other(keyed: World) -> None:
    keyed.start("Do", b"x").result()
    assert [seen.caller.process for seen in keyed.report(keyed.server).seen] == ["client"]
    assert (keyed.client.live.stamps_refused, keyed.server.live.stamps_refused) == (0, 0)


@pytest.mark.parametrize(
    "forged",
    [
        "client;7;999999;0;999999",
        StampTags([NEW]).sign("client;7;9;0;1", "/t.T/Do", reply=False),
        StampTags([OLD]).sign("client;7;9;0;1", "/t.T/Many", reply=False),
        StampTags([OLD]).sign("client;7;9;0;1", "/t.T/Do", reply=True),
        StampTags([OLD]).sign("client;7;9;0;1", "/t.T/Do", reply=False).replace(";9;", ";10;"),
    ],
    ids=["no tag", "another key", "another method", "a reply's", "another number"],
)
def test_a_forged_stamp_is_ignored_and_its_sender_learns_nothing(keyed: World, forged: str) -> None:
    with grpc.insecure_channel(address_of_server(keyed)) as channel:
        do: Any = channel.unary_unary("/t.T/Do")
        reply, call = do.with_call(b"x", metadata=((METADATA_KEY, forged),))
    assert reply == b"x"
    assert keyed.report(keyed.server).seen == ()
    assert keyed.server.live.stamps_refused == 1
    assert METADATA_KEY not in {key for key, _ in (*call.initial_metadata(), *call.trailing_metadata())}


def test_a_key_is_replaced_in_two_steps_without_unknown_callers() -> None:
    before, between, after = StampTags([OLD]), StampTags([NEW, OLD]), StampTags([NEW])
    for signs, verifies in ((before, between), (between, between), (between, after), (after, between)):
        assert verifies.verify(signs.sign(STAMP, "/s/M", reply=False), "/s/M", reply=False) == STAMP
    assert after.verify(before.sign(STAMP, "/s/M", reply=False), "/s/M", reply=False) is None


def test_an_agent_without_a_key_reads_a_tagged_stamp() -> None:
    assert decode(StampTags([OLD]).sign(STAMP, "/s/M", reply=False)) == decode(STAMP) is not None
    assert decode(f"{STAMP};one;two") is None


@pytest.mark.parametrize("text", ["", ";", STAMP, f"{STAMP};", f"{STAMP};\udcff", "\x00" * 99])
def test_an_untagged_stamp_is_rejected(text: str) -> None:
    assert StampTags([OLD]).verify(text, "/s/M", reply=False) is None


def test_a_file_of_keys_is_followed_and_a_bad_one_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# the fleet's\n{OLD}\n")
    keys = StampKeys(file=str(file))
    assert keys.tags is not None
    signed = keys.tags.sign(STAMP, "/s/M", reply=False)
    file.write_text(f"{NEW}\n{OLD}\n")
    keys.reload()
    assert keys.tags.verify(signed, "/s/M", reply=False) == STAMP
    assert keys.tags.sign(STAMP, "/s/M", reply=False) == StampTags([NEW]).sign(STAMP, "/s/M", reply=False)
    for bad in ("short\n", "\n"):
        file.write_text(bad)
        keys.reload()
        keys.reload()
    assert keys.tags.verify(signed, "/s/M", reply=False) == STAMP
    assert len(caplog.records) == 2
    assert "short" not in caplog.text


def test_a_world_writable_key_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{OLD}\n")
    file.chmod(0o666)
    with pytest.raises(StampKeyError, match=r"keys: writable by all users \(chmod o-w\)"):
        StampKeys(file=str(file))


@pytest.mark.parametrize("text", ["short", f"{OLD},short", " , "])
def test_weak_keys_are_refused_and_never_shown(text: str) -> None:
    with pytest.raises(SettingRefusedError, match="stamp_key") as refused:
        Agent("a", stamp_key=text)
    assert OLD not in str(refused.value)
    assert OLD not in repr(Agent("a", stamp_key=OLD, enabled=False).settings)
