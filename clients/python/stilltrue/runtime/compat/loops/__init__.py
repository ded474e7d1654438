"""Reads private parts of event loops: asyncio's, uvloop's, and those of other frameworks."""
