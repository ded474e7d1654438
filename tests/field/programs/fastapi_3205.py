"""fastapi/fastapi 3205: requests hold connections and want a thread; the threads are with requests that want a connection."""

import anyio
import anyio.to_thread
from field_program import FAR_SECONDS, MODE, begin, join, stay
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import QueuePool

THREADS, CONNECTIONS, REQUESTS = 2, 2, 4
engine = create_engine(
    "sqlite://",
    poolclass=QueuePool,
    pool_size=CONNECTIONS,
    max_overflow=REQUESTS if MODE == "overflow" else 0,
    pool_timeout=FAR_SECONDS,
    connect_args={"check_same_thread": False},
)


def get_session() -> Connection:
    return engine.connect()  # core: site x2


def read(session: Connection) -> None:
    session.exec_driver_sql("select 1").fetchall()


def both() -> None:
    with engine.connect() as session:
        read(session)


async def request() -> None:
    if MODE == "at_once":
        await anyio.to_thread.run_sync(both)
        return
    session = await anyio.to_thread.run_sync(get_session)  # core: site x2
    await anyio.sleep(0.3)
    await anyio.to_thread.run_sync(read, session)  # core: site x2
    await anyio.to_thread.run_sync(session.close)


async def main() -> None:
    threads = THREADS + 1 if MODE == "one_more" else THREADS
    anyio.to_thread.current_default_thread_limiter().total_tokens = threads
    async with anyio.create_task_group() as group:  # behind: site
        for _ in range(REQUESTS):
            group.start_soon(request)


join("site")
begin(lambda: anyio.run(main))
stay()
