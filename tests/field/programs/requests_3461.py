"""Responses that are streamed keep their connections; a session with one blocking connection has none left for the second."""

import threading

import requests
from field_program import FAR_SECONDS, MODE, begin, join, stay
from files import serve_files
from requests.adapters import HTTPAdapter
from served import serve


def close_later(response: requests.Response) -> None:
    threading.Event().wait(FAR_SECONDS)
    response.raw.release_conn()


def compare(request: bytes, context: object) -> bytes:
    first = session.get(url, stream=MODE != "read")
    if MODE == "read":
        threading.Event().wait(FAR_SECONDS)
    if MODE == "another":
        begin(close_later, first)
    second = session.get(url, stream=True)  # core: files
    return first.content + second.content


join("files")
url = serve_files()
session = requests.Session()
session.mount("http://", HTTPAdapter(pool_maxsize=2 if MODE == "room" else 1, pool_block=True))
call = serve(compare)
if MODE == "room":
    second = session.get(url, stream=True)
    begin(close_later, second)
begin(lambda: call(b""))  # behind: files
stay()
