"""can1357/oh-my-pi 6031: agents of a swarm wait for each other: one for an answer by mail, one for the end of a task."""

import asyncio

from field_program import FAR_SECONDS, MODE, join, ready, service

agent = join("swarm")
agent.start()
PARENT = f"{service('swarm')}:parent"
inbox: asyncio.Queue = asyncio.Queue()


async def ask_parent() -> str:
    """By message: the parent has a mailbox, and answers when it reads it."""
    answer = asyncio.get_running_loop().create_future()
    inbox.put_nowait(answer)
    with agent.waiting_for(PARENT):
        if MODE == "time_out":
            return await asyncio.wait_for(answer, FAR_SECONDS)
        return await answer  # core: swarm


async def child() -> str:
    return await ask_parent()


async def parent() -> str:
    """By the task: the parent waits for its child's result."""
    agent.answers(PARENT)
    helper = asyncio.create_task(child(), name="child")
    if MODE == "reads_its_mail":
        asyncio.create_task(read_mail(), name="mail")  # noqa: RUF006 - the loop runs until the program ends
        await asyncio.sleep(0)
    return await helper  # core: swarm


async def read_mail() -> None:
    """Another task of the same agent answers."""
    agent.answers(PARENT)
    await asyncio.sleep(FAR_SECONDS)
    (await inbox.get()).set_result("")


async def main() -> None:
    running.append(asyncio.create_task(parent(), name="parent"))
    await asyncio.sleep(0.1)
    ready()
    await asyncio.Event().wait()


running: list[asyncio.Task] = []
asyncio.run(main())
