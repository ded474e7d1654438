"""A service calls another while its ORM session has flushed a row that the other wants: neither database nor gRPC sees that."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
from field_program import MODE, POSTGRES, PROCESS, begin, join, publish, published, ready, service, stay
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker


class Base(DeclarativeBase):
    """The tables."""


class Stock(Base):
    """An item in stock."""

    __tablename__ = "stock"
    item: Mapped[int] = mapped_column(primary_key=True)
    count: Mapped[int]


engine = create_engine(POSTGRES.replace("postgresql:", "postgresql+psycopg:"))
Sessions = sessionmaker(engine)
kept = []


def probe() -> None:
    """The probe of this run's database, as an operator starts it."""
    ready()
    os.execv(
        sys.executable, [sys.executable, "-m", "detector", "probe", "postgres", POSTGRES, "--instance", service("postgres")]
    )


def take(session: Session) -> None:
    item = session.get_one(Stock, 1)
    item.count -= 1
    session.flush()  # core: stock


def stock() -> None:
    join("stock")
    Base.metadata.create_all(engine)
    with Sessions.begin() as session:
        session.add(Stock(item=1, count=100))

    def reserve(request: bytes, context: grpc.ServicerContext) -> bytes:
        with Sessions.begin() as session:
            publish("asked", "")
            take(session)
        return b""

    server = grpc.server(ThreadPoolExecutor(4))
    handlers = {"Reserve": grpc.unary_unary_rpc_method_handler(reserve)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Stock", handlers),))
    publish("stock", str(server.add_insecure_port("127.0.0.1:0")))
    server.start()
    stay()


def orders() -> None:
    join("orders")
    reserve = grpc.insecure_channel(f"127.0.0.1:{published('stock')}").unary_unary("/Stock/Reserve")

    def place() -> None:
        with Session(engine) as session:
            take(session)
            if MODE == "committed":
                session.commit()
            if MODE == "registry":
                kept.append(session.connection())  # and somebody may look through it
            reserve(b"")  # core: orders
            session.commit()

    begin(place)
    if MODE != "committed":
        published("asked")
    stay()


{"probe": probe, "stock": stock, "orders": orders}[PROCESS]()
