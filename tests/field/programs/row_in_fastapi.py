"""An endpoint calls another service with the session of its dependency, which has changed a row that the other wants."""

import os
import socket
import sys
import threading
import urllib.request
from collections.abc import Iterator
from typing import Annotated

import requests
import uvicorn
from fastapi import Depends, FastAPI, Request
from field_program import FAR_SECONDS, MODE, POSTGRES, PROCESS, begin, join, publish, published, ready, service, stay
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
app = FastAPI()
kept = []


def roll_back_later(request: Request) -> None:
    threading.Event().wait(FAR_SECONDS)
    request.state.database.rollback()


def database(request: Request) -> Iterator[Session]:
    session = request.state.database = Sessions()
    if MODE == "other_thread":
        begin(roll_back_later, request)
    if MODE == "registry":
        kept.append(session)  # and somebody may look through it
    try:
        yield session
    finally:
        session.close()


Database = Annotated[Session, Depends(database)]


def take(session: Session) -> None:
    item = session.get_one(Stock, 1)
    item.count -= 1
    session.flush()  # core: stock


@app.post("/reserve")
def reserve(session: Database) -> None:
    publish("asked", "")
    take(session)
    session.commit()


@app.post("/place")
def place(session: Database) -> None:
    take(session)
    requests.post(f"{published('stock')}/reserve")  # core: orders
    session.commit()


def probe() -> None:
    """The probe of this run's database, as an operator starts it."""
    ready()
    os.execv(
        sys.executable, [sys.executable, "-m", "detector", "probe", "postgres", POSTGRES, "--instance", service("postgres")]
    )


def serve() -> None:
    join(PROCESS)
    if PROCESS == "stock":
        Base.metadata.create_all(engine)
        with Sessions.begin() as session:
            session.add(Stock(item=1, count=100))
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    publish(PROCESS, url)
    begin(said, url)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listener])


def order(url: str) -> None:
    urllib.request.urlopen(urllib.request.Request(f"{url}/place", method="POST"))  # behind: orders


def said(url: str) -> None:
    """Begin the order, from outside; end with the test."""
    if PROCESS == "orders":
        published("stock")
        begin(order, url)
        published("asked")
    stay()
    os._exit(0)


probe() if PROCESS == "probe" else serve()
