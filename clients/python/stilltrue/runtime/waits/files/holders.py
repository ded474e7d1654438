"""Finds the parties that hold locks on files, for waits in this process and others.

Rules:

1. A thread or task holds the lock of an open file if a frame of application code refers to the file object, or to an object
   that has it as an attribute; so does one in the block of such an object, or of a function under ``contextmanager`` that does.
   The system must show that the file object's own descriptor has the lock (:mod:`~stilltrue.runtime.waits.files.kernel`).
2. Any other party that can reach the file object may close or unlock it: at the second look each is a way out, whatever its
   code mentions. A number instead of a file object (``os.open``) may be anywhere, so such a lock has no known holder.
3. One of the ``filelock`` library's locks keeps its descriptor in thread-local storage. So a thread in its block, or between
   ``acquire()`` and the ``finally`` that releases it, holds it, and no other thread can release it. The tasks of a loop share
   that storage: for a task, rule 2 holds for the lock.
4. Another descriptor of the same open file (a forked child's, a duplicate) may release the lock, or keep it: that is doubt.
   The number of its descriptor is enough to close or unlock it, too: so any other party whose code mentions closing
   descriptors, or ``flock()`` without taking a lock, is a way out.
5. A lock made by ``lockf()`` is released when this process closes any descriptor of the file. So another descriptor on it is
   doubt, and any other party whose code mentions opening files, whichever they are, is a way out.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any
from weakref import ref

from stilltrue.model import PartyName
from stilltrue.protocol.report import Hold
from stilltrue.runtime.introspection.frames import frame_of, variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.code.attributes import attribute_dictionary, attribute_of
from stilltrue.runtime.look.code.system_operations import OPENS_FILES, UNLOCKS_FILES
from stilltrue.runtime.waits.files import filelocks, kernel
from stilltrue.runtime.waits.files.kernel import File
from stilltrue.runtime.waits.holders.held_locks import blocks_of_suspended
from stilltrue.runtime.waits.holders.try_finally import held_by_try_finally
from stilltrue.runtime.waits.holders.with_blocks import blocks_of
from stilltrue.runtime.waits.process_view import LiveProcessView
from stilltrue.runtime.waits.wait import CallStack, Ender, SeenWait

SECONDS_MAX = 0.01
"""Processor time at one cut; beyond it no lock has a holder."""
AGAIN_SECONDS = 0.25
"""How long it counts that this process has no lock."""
ATTRIBUTES_MAX = 100
_OPENING, _UNLOCKING = frozenset({OPENS_FILES}), frozenset({UNLOCKS_FILES})
_BUFFERED = (io.BufferedWriter, io.BufferedReader, io.BufferedRandom)
_MADE = (contextlib._GeneratorContextManager, contextlib._AsyncGeneratorContextManager)  # noqa: SLF001 - there is no public name


@dataclass(frozen=True, slots=True)
class _Held:
    """A lock that a party holds through a descriptor, and the objects through which others may release it."""

    file: File
    descriptor: int
    through: tuple[ref[Any], ...]


class FileLocks:
    """The locks of one process."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._of: dict[PartyName, tuple[_Held, ...]] = {}
        self._none_until = float("-inf")

    def holds(self, view: LiveProcessView) -> tuple[Hold, ...]:
        """Rules 1 and 3: the parties that hold locks at a cut."""
        found: dict[PartyName, tuple[_Held, ...]] = {}
        try:
            return tuple(dict.fromkeys(self._read(view, found))) if self._may_hold() else ()
        finally:
            self._of = found  # in one step: a look in another thread may read it

    def _may_hold(self) -> bool:
        now = time.monotonic()
        if now < self._none_until:
            return False
        may = kernel.may_have_locks()
        self._none_until = float("-inf") if may else now + AGAIN_SECONDS
        return may

    def _read(self, view: LiveProcessView, found: dict[PartyName, tuple[_Held, ...]]) -> Iterable[Hold]:
        holders: dict[File, dict[Ender, _Held]] = {}
        budget = Budget(SECONDS_MAX)
        for stack in (*view.stacks().values(), *view.stacks_of_tasks().values()):
            for one in _held_by(stack, budget):
                holders.setdefault(one.file, {})[stack.who] = one
            if budget.spent:
                return
        for file, those in holders.items():
            resource = kernel.lock_resource(file)
            parties = {view.party_of(who): one for who, one in those.items()}
            for party, one in parties.items():
                if party is not None and resource is not None:
                    found[party] = (*found.get(party, ()), one)
                    if None not in parties:
                        yield Hold(party=party, resource=resource)

    def of(self, party: PartyName | None) -> tuple[Any, ...]:
        """The objects through which a party's locks at the newest cut may be released (rules 2 and 3)."""
        held = () if party is None else self._of.get(party, ())
        return tuple(thing for one in held for weak in one.through if (thing := weak()) is not None)

    def undone_by_descriptor(self, party: PartyName | None) -> SeenWait | None:
        """Rules 4 and 5: what other parties may do to release a party's locks at the newest cut, whatever they can reach."""
        held = () if party is None else self._of.get(party, ())
        if not held:
            return None
        names = frozenset[str]().union(*(_OPENING if one.file.posix else _UNLOCKING for one in held))
        return SeenWait(on=self, enders=None, ending_names_anywhere=names)

    def doubt_of(self, party: PartyName | None) -> str:
        """Rules 4 and 5: why a party's locks may be released otherwise, as text; empty: they may not."""
        for one in () if party is None else self._of.get(party, ()):
            if kernel.locked_through(one.descriptor) != one.file:
                return "it has released the lock of a file"
            if one.file.posix:
                if kernel.descriptors_on(one.file) != 1:
                    return "another descriptor is open on the file that it has locked, and would release the lock when closed"
                continue
            own, others, doubt = kernel.locking_descriptors(one.file)
            if own != 1 or others:
                return "the lock of a file that it holds also belongs to another descriptor, of a child process or a duplicate"
            if doubt:
                return doubt
        return ""


def _held_by(stack: CallStack, budget: Budget) -> Iterator[_Held]:
    """The locks that a thread or task holds."""
    for index, frame in enumerate(stack.frames):
        if not is_application(frame.f_code):
            continue
        blocks = blocks_of_suspended(stack.coroutines[index], frame) if stack.coroutines else list(blocks_of(frame))
        bare = [thing for thing, awaited in held_by_try_finally(frame) if not awaited]
        for thing in (*blocks, *bare):
            held = _of_filelock(filelocks.lock_in(thing), stack)
            yield from () if held is None else (held,)
        for thing in _things_of(frame, blocks):
            if not budget.step():
                return
            yield from _through_files_of(thing)


def _of_filelock(lock: Any, stack: CallStack) -> _Held | None:
    """Rule 3."""
    descriptor = None if lock is None else filelocks.descriptor_of(lock)
    file = None if descriptor is None else kernel.locked_through(descriptor)
    if file is None or descriptor is None:
        return None
    return _Held(file, descriptor, () if stack.task is None else (ref(lock),))


def _things_of(frame: FrameType, blocks: Iterable[Any]) -> Iterator[Any]:
    """The objects of a frame and of the functions under ``contextmanager`` in whose blocks it is."""
    yield from variables_of(frame).values()
    for block in blocks:
        made = frame_of(attribute_of(block, "gen")) if type(block) in _MADE else None
        yield from (block,) if made is None else variables_of(made).values()


def _through_files_of(thing: Any) -> Iterator[_Held]:
    """The locks on a file object, or on those that an object has as attributes (rule 1)."""
    layers = _layers_of(thing)
    if not layers:
        own = attribute_dictionary(thing)
        nearby = () if own is None or len(own) > ATTRIBUTES_MAX else tuple(own.values())
        every = [layers for one in nearby if (layers := _layers_of(one))]
    else:
        every = [layers]
    for layers in every:
        try:
            descriptor = layers[-1].fileno()
        except ValueError:  # closed
            continue
        file = kernel.locked_through(descriptor)
        if file is not None:
            yield _Held(file, descriptor, tuple(ref(one) for one in layers))


def _layers_of(thing: Any) -> list[Any]:
    """A file object and those inside it, down to the one with the descriptor; empty for any other object."""
    layers: list[Any] = []
    if type(thing) is getattr(sys.modules.get("tempfile"), "_TemporaryFileWrapper", None):  # imported by the program, if at all
        layers.append(thing)
        thing = attribute_of(thing, "file")
    try:
        if type(thing) is io.TextIOWrapper:
            layers.append(thing)
            thing = thing.buffer
        if type(thing) in _BUFFERED:
            layers.append(thing)
            thing = thing.raw
    except ValueError:  # detached
        return []
    return [*layers, thing] if type(thing) is io.FileIO else []
