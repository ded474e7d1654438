"""Who is a member: the agents that are connected, or whose stream broke while their lease still runs.

Rules:

1. A hello makes a process a member; a goodbye, or a lease that ran out, ends that.
2. A later incarnation replaces the one before. An earlier one is refused while the later one's stream lives: two programs
   bear one name.
3. The same incarnation on a new stream is the same member; the old stream is over.
4. A member that speaks again after its lease ran out is a member again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from stilltrue.model import CallNumber, ProcessId, ProcessName, SnapshotId


class Stream(Protocol):
    """The way to one agent."""

    def send_mark(self, snapshot: SnapshotId, settled: Sequence[CallNumber] = ()) -> None:
        """Send the mark for ``snapshot``; one that is still on its way is replaced by it.

        ``settled``: the process's calls in doubt that were answered.
        """

    def replaced(self, text: str) -> None:
        """End the stream: another one has taken its place."""


class NameTakenError(Exception):
    """Rule 2: the name belongs to a process that is connected."""


class TooManyMembersError(Exception):
    """The bound on members is reached."""


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """One agent's connection and what was last heard on it. ``stream`` is None once it broke. Times in seconds."""

    process: ProcessId
    labels: Mapping[str, str]
    agent: str
    reactive: bool
    connected_at: float
    heard_at: float
    colour: SnapshotId
    stream: Stream | None
    reports_dropped: int = 0
    stamps_refused: int = 0

    @property
    def name(self) -> ProcessName:
        """The process's name."""
        return self.process.instance

    @property
    def live(self) -> bool:
        """Whether marks can reach it."""
        return self.stream is not None


class Roster:
    """The members by name."""

    def __init__(self, *, lease_seconds: float, members_max: int) -> None:
        """``members_max``: more are refused."""
        self._lease_seconds = lease_seconds
        self._members_max = members_max
        self._members: dict[ProcessName, Member] = {}

    def __len__(self) -> int:
        return len(self._members)

    def get(self, name: ProcessName) -> Member | None:
        """The member of that name."""
        return self._members.get(name)

    def all(self) -> list[Member]:
        """Every member, by name."""
        return [self._members[name] for name in sorted(self._members)]

    def admit(self, member: Member) -> Member | None:
        """Rules 1 to 4: ``member`` is one now; the one that it took the place of, if any."""
        before = self._members.get(member.name)
        if before is None and len(self._members) >= self._members_max:
            raise TooManyMembersError(f"there are {self._members_max} members already (--members-max)")
        if before is not None and before.live and before.process.incarnation > member.process.incarnation:
            raise NameTakenError(
                f"{member.name} is connected already, and was started later; give each process an instance name of its own"
            )
        self._members[member.name] = member
        return before

    def is_member(self, member: Member) -> bool:
        """Whether it is this very connection that counts."""
        return self._members.get(member.name) is member

    def remove(self, member: Member) -> bool:
        """End a membership; False when another connection has taken its place, or it had ended."""
        if not self.is_member(member):
            return False
        del self._members[member.name]
        return True

    def lapsed(self, now: float) -> list[Member]:
        """The members that have not been heard of for a lease, by name; they are members still."""
        oldest = now - self._lease_seconds
        return [member for member in self.all() if member.heard_at < oldest]
