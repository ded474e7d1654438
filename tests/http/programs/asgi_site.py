"""The same for ASGI: FastAPI."""

import fastapi
from site_of_wsgi import recorded

app = fastapi.FastAPI()


@app.get("/one/{n}")
async def one(n: int):
    return recorded()
