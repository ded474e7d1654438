"""HTTP: requests, httpx and aiohttp as callers, WSGI and ASGI applications as servers. The rules are the recorder's."""
