"""A swarm of asyncio agents that speak through mailboxes: ``python swarm.py``, with a detector on STILLTRUE_DETECTOR.

Each agent takes one message at a time and may ask others before it answers. The writer asks the reviewer, and the reviewer
asks the writer what was meant: the writer is busy with its own question, so neither ever answers. With ASK=librarian it
asks somebody else, and all is well.

Stilltrue is told two things: who answers which mailbox (``answers``), and who waits for whose answer (``waiting_for``). The
answer then says "the answer of writer". On CPython up to 3.13 Stilltrue finds this deadlock without being told, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass

import stilltrue

ASK = os.environ.get("ASK", "writer")
QUESTIONS = {"writer": "reviewer", "reviewer": ASK, "librarian": ""}
"""Whom each agent asks before it answers."""
agent = stilltrue.Agent("swarm")
SWARM = agent.process.instance
"""Begins the names of the mailboxes: names are global to all processes, and another swarm has mailboxes of its own."""


@dataclass
class Message:
    """A question, and where its answer goes."""

    text: str
    answer: asyncio.Future[str]


class Swarm:
    """The agents and their mailboxes."""

    def __init__(self) -> None:
        self.mailboxes: dict[str, asyncio.Queue[Message]] = {name: asyncio.Queue() for name in QUESTIONS}
        self.agents = [asyncio.create_task(self.live(name), name=name) for name in QUESTIONS]

    async def ask(self, name: str, text: str) -> str:
        """Ask an agent, and wait for its answer."""
        message = Message(text, asyncio.get_running_loop().create_future())
        with agent.waiting_for(f"{SWARM}:{name}", what=f"the answer of {name}"):
            await self.mailboxes[name].put(message)
            return await message.answer

    async def live(self, name: str) -> None:
        """One agent: it answers what comes to its mailbox, one message at a time."""
        agent.answers(f"{SWARM}:{name}")
        while True:
            message = await self.mailboxes[name].get()
            helper = QUESTIONS[name]
            advice = await self.ask(helper, message.text) if helper else message.text
            message.answer.set_result(f"{name}: {advice}")


async def main() -> None:
    """Give the writer something to do, again and again."""
    agent.start()
    swarm = Swarm()
    while True:
        await swarm.ask("writer", "a chapter about deadlocks")
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: it says goodbye to the detector
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
