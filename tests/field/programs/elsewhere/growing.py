"""Somebody who lets a limit grow later."""

import asyncio


async def grow(places: asyncio.Semaphore, seconds: float) -> None:
    """One place more, after a while."""
    await asyncio.sleep(seconds)
    places.release()
