"""andrewsayre/pyheos 58: a command's failure calls a handler under the lock that every command takes."""

import asyncio
import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay

failed = threading.Event()


class Connection:
    """Sends one command at a time."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()

    async def command(self, name: str) -> str:
        async with self.lock:  # core: player
            if name == "play":
                failed.set()
                await sign_in_again(self)
        return name

    async def command_in_time(self, name: str) -> str:
        return await asyncio.wait_for(self.command(name), FAR_SECONDS)


async def sign_in_again(connection: Connection) -> None:
    if MODE == "patience":
        await connection.command_in_time("sign in")
    if MODE == "slow":
        await asyncio.sleep(FAR_SECONDS)
    if MODE == "task":
        signing_in = asyncio.create_task(connection.command("sign in"))
        await asyncio.wait([signing_in], timeout=FAR_SECONDS)
    await connection.command("sign in")


if __name__ == "__main__":
    join("player")
    begin(asyncio.run, Connection().command("play"))
    failed.wait()
    stay()
