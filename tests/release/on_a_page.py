"""Runs a snippet of a page, on standard input, with the names that the text around it has introduced."""

from __future__ import annotations

import ast
import asyncio
import inspect
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import grpc
import grpc.aio

import stilltrue
from detector.core.snapshot import Snapshot
from stilltrue.model import Verdict


class Message:
    """One that another task answers."""

    @property
    async def answer(self) -> str:
        """What it answers."""
        return "yes"


def names() -> dict[str, object]:
    """What the text around a snippet has introduced."""
    agent = stilltrue.Agent(service="orders")
    passing: grpc.UnaryUnaryMultiCallable[bytes, bytes] = agent.channel(grpc.insecure_channel("127.0.0.1:1")).unary_unary(
        "/shop.Stock/Pass"
    )
    return {
        "stilltrue": stilltrue,
        "grpc": grpc,
        "ThreadPoolExecutor": ThreadPoolExecutor,
        "Snapshot": Snapshot,
        "Verdict": Verdict,
        "agent": agent,
        "message": Message(),
        "application": lambda environ, start_response: [],
        "StockStub": lambda channel: channel,
        "stub": SimpleNamespace(Pass=passing.future),
        "request": b"",
    }


async def main() -> None:
    """Run it; where it awaits something, as in a coroutine."""
    done = eval(compile(sys.stdin.read(), "<page>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names())
    if inspect.iscoroutine(done):
        await done


if __name__ == "__main__":
    asyncio.run(main())
