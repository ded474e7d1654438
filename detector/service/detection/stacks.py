"""Asks agents for the stacks of parties that have not moved for a while, and waits for the answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from detector.service.detection.membership.members import Member
from stilltrue.model import ProcessName
from stilltrue.protocol.requests.stacks import StacksFound

ANSWER_SECONDS_MAX = 5.0
"""Time limit for an agent, which looks twice, ``block_seconds_max`` apart."""
_NO_STACKS = {
    "sidecar": "a sidecar cannot look into its program, so it has no stacks: use the program's own tools (a thread dump)",
    "probe": "a probe reads waits from its server, which has no stacks",
}
"""By the first part of the agent's name and version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStacks:
    """One process's answer; ``silent``: why it did not answer."""

    process: ProcessName
    found: StacksFound
    silent: str = ""


class StacksRequests:
    """Requests stacks. Every method is called on the event loop."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[tuple[int, ProcessName], asyncio.Future[StacksFound]] = {}

    async def ask(self, members: Iterable[Member]) -> list[ProcessStacks]:
        """Ask the members; returns their answers in the same order."""
        return list(await asyncio.gather(*map(self._ask, members)))

    async def _ask(self, member: Member) -> ProcessStacks:
        number = next(self._numbers)
        nothing = StacksFound(number=number)
        if member.stream is None:
            return ProcessStacks(process=member.name, found=nothing, silent="it is not connected")
        if not member.stacks:
            text = _NO_STACKS.get(member.agent.partition("/")[0], f"its agent ({member.agent or 'unknown'}) is too old")
            return ProcessStacks(process=member.name, found=nothing, silent=text)
        key = number, member.name
        future = self._waiting[key] = asyncio.get_running_loop().create_future()
        member.stream.send_stacks_request(number)
        try:
            found = await asyncio.wait_for(future, ANSWER_SECONDS_MAX)
        except TimeoutError:
            text = f"its agent did not answer within {ANSWER_SECONDS_MAX:g} s"
            return ProcessStacks(process=member.name, found=nothing, silent=text)
        finally:
            self._waiting.pop(key, None)
        return ProcessStacks(process=member.name, found=found)

    def found(self, member: Member, found: StacksFound) -> None:
        """Take an agent's answer; it is dropped if it came too late."""
        future = self._waiting.get((found.number, member.name))
        if future is not None and not future.done():
            future.set_result(found)
