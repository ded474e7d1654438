"""A download is read from a client with one connection; for each part of it a request is made with the same client."""

import threading

import httpx
from field_program import FAR_SECONDS, MODE, begin, join, stay
from files import serve_files
from served import serve


def close_later(response: httpx.Response) -> None:
    threading.Event().wait(FAR_SECONDS)
    response.close()


def download(request: bytes, context: object) -> bytes:
    with client.stream("GET", url) as whole:
        if MODE == "another":
            begin(close_later, whole)
        if MODE == "slow":
            threading.Event().wait(FAR_SECONDS)
        for _ in whole.iter_bytes():
            client.get(url)  # core: files
    return b""


join("files")
url = serve_files()
limits = httpx.Limits(max_connections=1)
client = httpx.Client(limits=limits, timeout=httpx.Timeout(None, pool=FAR_SECONDS if MODE == "patience" else None))
call = serve(download)
begin(lambda: call(b""))  # behind: files
stay()
