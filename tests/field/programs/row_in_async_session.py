"""A task calls another service while its ORM session has flushed a row that the other wants."""

import asyncio
import os
import sys

import grpc.aio
from field_program import FAR_SECONDS, MODE, POSTGRES, PROCESS, begin, join, publish, published, ready, service, stay
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """The tables."""


class Stock(Base):
    """An item in stock."""

    __tablename__ = "stock"
    item: Mapped[int] = mapped_column(primary_key=True)
    count: Mapped[int]


engine = create_async_engine(POSTGRES.replace("postgresql:", "postgresql+asyncpg:"))
Sessions = async_sessionmaker(engine)


def probe() -> None:
    """The probe of this run's database, as an operator starts it."""
    ready()
    os.execv(
        sys.executable, [sys.executable, "-m", "detector", "probe", "postgres", POSTGRES, "--instance", service("postgres")]
    )


async def take(session: AsyncSession) -> None:
    item = await session.get_one(Stock, 1)
    item.count -= 1
    await session.flush()  # core: stock


async def stock() -> None:
    join("stock")
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with Sessions.begin() as session:
        session.add(Stock(item=1, count=100))

    async def reserve(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        async with Sessions.begin() as session:
            publish("asked", "")
            await take(session)
        return b""

    server = grpc.aio.server()
    handlers = {"Reserve": grpc.unary_unary_rpc_method_handler(reserve)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Stock", handlers),))
    publish("stock", str(server.add_insecure_port("127.0.0.1:0")))
    await server.start()
    await server.wait_for_termination()


async def orders() -> None:
    join("orders")
    reserve = grpc.aio.insecure_channel(f"127.0.0.1:{published('stock')}").unary_unary("/Stock/Reserve")
    async with Sessions() as session:
        await take(session)
        if MODE == "timer":
            asyncio.get_running_loop().call_later(FAR_SECONDS, asyncio.current_task().cancel)
        if MODE == "committed":
            await session.commit()
        await reserve(b"")  # core: orders
        await session.commit()


if PROCESS == "probe":
    probe()
begin(asyncio.run, {"stock": stock, "orders": orders}[PROCESS]())
published("asked" if PROCESS == "orders" and MODE != "committed" else "stock")
stay()
