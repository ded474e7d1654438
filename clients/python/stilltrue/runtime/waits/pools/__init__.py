"""Connection pools: the holders of their shares, and the waits for one. Only a library's own module reads its internals."""

from __future__ import annotations

from stilltrue.runtime.waits.pools import aiohttp, aiopg, asyncpg, httpcore, psycopg, redis, sqlalchemy, urllib3

RESOLVERS = (
    *sqlalchemy.RESOLVERS,
    *psycopg.RESOLVERS,
    *asyncpg.RESOLVERS,
    *aiopg.RESOLVERS,
    *redis.RESOLVERS,
    *httpcore.RESOLVERS,
    *urllib3.RESOLVERS,
    *aiohttp.RESOLVERS,
)
