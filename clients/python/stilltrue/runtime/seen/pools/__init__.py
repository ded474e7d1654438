"""Connection pools: who has their shares, and who waits for one; each library has one module, the only door to its parts."""

from __future__ import annotations

from stilltrue.runtime.seen.pools import aiohttp, aiopg, asyncpg, httpcore, psycopg, redis, sqlalchemy, urllib3

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
