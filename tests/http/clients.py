"""The same requests by each client; the result of each is a dictionary of everything that an application can see."""

from __future__ import annotations

import asyncio
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx
import requests
import urllib3

Seen = dict[str, Any]
Client = Callable[..., Seen]
OF_THE_TIME = ("date", "content-length")


def by_requests(url: str, *, data: bytes | None = None, timeout: float | None = None, stream: bool = False) -> Seen:
    try:
        with requests.Session() as session:
            reply = session.request("POST" if data else "GET", url, data=data, timeout=timeout, stream=stream)
            body = b"".join(reply.iter_content(4)) if stream else reply.content
            return _seen(reply.status_code, reply.headers, body) | {
                "history": [one.status_code for one in reply.history],
                "sent": sorted(name.lower() for name in reply.request.headers),
                "raw": _names(reply.raw.headers),
                "elapsed": reply.elapsed.total_seconds() > 0,
            }
    except requests.RequestException as error:
        return _raised(error)


def by_httpx(url: str, *, data: bytes | None = None, timeout: float | None = None, stream: bool = False) -> Seen:
    try:
        with httpx.Client(timeout=timeout, follow_redirects=True) as client:
            if stream:
                with client.stream("GET", url) as reply:
                    return _of_httpx(reply, b"".join(reply.iter_bytes()))
            reply = client.request("POST" if data else "GET", url, content=data)
            return _of_httpx(reply, reply.content)
    except httpx.HTTPError as error:
        return _raised(error)


def by_httpx_async(url: str, *, data: bytes | None = None, timeout: float | None = None, stream: bool = False) -> Seen:
    return asyncio.run(httpx_async(url, data=data, timeout=timeout, stream=stream))


async def httpx_async(url: str, *, data: bytes | None = None, timeout: float | None = None, stream: bool = False) -> Seen:
    try:
        async with httpx.AsyncClient(timeout=timeout, follow_redirects=True) as client:
            if stream:
                async with client.stream("GET", url) as reply:
                    return _of_httpx(reply, b"".join([part async for part in reply.aiter_bytes()]))
            reply = await client.request("POST" if data else "GET", url, content=data)
            return _of_httpx(reply, reply.content)
    except httpx.HTTPError as error:
        return _raised(error)


def by_aiohttp(url: str, *, data: bytes | None = None, timeout: float | None = None, stream: bool = False) -> Seen:
    return asyncio.run(aiohttp_async(url, data=data, timeout=timeout, stream=stream))


async def aiohttp_async(url: str, *, data: bytes | None = None, timeout: float | None = None, stream: bool = False) -> Seen:
    limit = aiohttp.ClientTimeout(total=timeout)
    try:
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.request("POST" if data else "GET", url, data=data) as reply,
        ):
            body = b"".join([part async for part in reply.content.iter_any()]) if stream else await reply.read()
            return _seen(reply.status, reply.headers, body) | {
                "history": [one.status for one in reply.history],
                "sent": _names(reply.request_info.headers),
                "raw": sorted(name.decode().lower() for name, _ in reply.raw_headers),
            }
    except (aiohttp.ClientError, TimeoutError) as error:
        return _raised(error)


def by_urllib(url: str, *, data: bytes | None = None, timeout: float | None = None, stream: bool = False) -> Seen:
    request = urllib.request.Request(url, data=data)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            return _seen(reply.status, reply.headers, _in_parts(reply) if stream else reply.read())
    except urllib.error.HTTPError as error:
        with error:
            return _seen(error.code, error.headers, error.read())
    except OSError as error:
        return _raised(error)


def by_http_client(url: str, *, data: bytes | None = None, timeout: float | None = None, stream: bool = False) -> Seen:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=timeout)
    try:
        connection.request("POST" if data else "GET", parts.path, data)
        reply = connection.getresponse()
        return _seen(reply.status, reply.headers, _in_parts(reply) if stream else reply.read())
    except OSError as error:
        return _raised(error)
    finally:
        connection.close()


def by_urllib3(url: str, *, data: bytes | None = None, timeout: float | None = None, stream: bool = False) -> Seen:
    with urllib3.PoolManager(retries=False) as pool:
        try:
            reply = pool.request("POST" if data else "GET", url, body=data, timeout=timeout, preload_content=not stream)
            body = b"".join(reply.stream(4)) if stream else reply.data
            return _seen(reply.status, reply.headers, body)
        except urllib3.exceptions.HTTPError as error:
            return _raised(error)


CLIENTS: dict[str, Client] = {
    "requests": by_requests,
    "urllib": by_urllib,
    "http.client": by_http_client,
    "urllib3": by_urllib3,
    "httpx": by_httpx,
    "httpx async": by_httpx_async,
    "aiohttp": by_aiohttp,
}
ON_LOOP = {"httpx async": httpx_async, "aiohttp": aiohttp_async}


def _of_httpx(reply: httpx.Response, body: bytes) -> Seen:
    return _seen(reply.status_code, reply.headers, body) | {
        "history": [one.status_code for one in reply.history],
        "sent": _names(reply.request.headers),
        "extensions": sorted(reply.request.extensions),
        "elapsed": reply.elapsed.total_seconds() > 0,
    }


def _seen(status: int, headers: Any, body: bytes) -> Seen:
    kept = {name.lower(): value for name, value in headers.items() if name.lower() not in OF_THE_TIME}
    return {"status": status, "headers": kept, "names": _names(headers), "body": body}


def _in_parts(reply: Any) -> bytes:
    return b"".join(iter(lambda: reply.read(4), b""))


def _names(headers: Any) -> list[str]:
    return sorted(name.lower() for name in headers)


def _raised(error: BaseException) -> Seen:
    return {"raised": type(error).__name__, "cause": type(error.__cause__).__name__}
