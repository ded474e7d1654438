"""A WSGI application that asks another with a lock in hand; it knows nothing of the agent, nor of its server."""

from __future__ import annotations

import threading

import requests
from flask import Flask, request

app = Flask(__name__)
_lock = threading.Lock()


def _ask() -> str:
    seconds = request.args.get("seconds")
    return requests.get(request.args["next"], timeout=None if seconds is None else float(seconds)).text


@app.get("/hold")
def hold() -> str:
    with _lock:
        return _ask()


@app.get("/pass")
def pass_on() -> str:
    return _ask()


@app.get("/take")
def take() -> str:
    with _lock:
        return "taken"
