"""The same for ASGI: FastAPI, and no framework."""

import json

import fastapi
from site_of_wsgi import recorded

app = fastapi.FastAPI()


@app.get("/one/{n}")
async def one(n: int):
    return recorded()


async def bare(scope, receive, send):
    if scope["type"] == "http":
        told = recorded()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(told).encode()})
