"""The shell for HTTP: requests, httpx and aiohttp as clients, WSGI, ASGI and aiohttp.web as servers."""
