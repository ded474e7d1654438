"""jaredrhod/backtalk 24: a program hangs up, and ``asyncio.run()`` waits for threads that wait for what the user types."""

import asyncio
import queue
import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay


class PushToTalk:
    """A key, for which a thread waits."""

    def __init__(self) -> None:
        self.pressed = threading.Event()

    def wait_for_press(self) -> None:
        self.pressed.wait(FAR_SECONDS if MODE == "limit" else None)  # core: talk


def type_later(typed: "queue.Queue[str]", key: PushToTalk) -> None:
    threading.Event().wait(FAR_SECONDS)
    typed.put("quit")
    key.pressed.set()


async def talk() -> None:
    typed, key = queue.Queue[str](), PushToTalk()
    if MODE == "typed":
        begin(type_later, typed, key)
    press = asyncio.get_running_loop().run_in_executor(None, key.wait_for_press)
    await asyncio.wait({press}, timeout=0.1)
    press.cancel()  # cancels the future; the thread waits on


def main() -> None:
    asyncio.run(talk())


join("talk")
begin(main)
stay()
