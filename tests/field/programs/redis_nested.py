"""IlyaSkriblovsky/txredisapi 90, with redis-py: a command while a pipeline has a connection, from a blocking pool."""

import threading

import redis
from field_program import FAR_SECONDS, MODE, REDIS, begin, join, stay

THREADS = 2
join("stock")
pool = redis.BlockingConnectionPool.from_url(
    REDIS,
    max_connections=THREADS + 1 if MODE == "one_more" else THREADS,
    timeout=FAR_SECONDS if MODE == "time_out" else None,
)
client = redis.Redis(connection_pool=pool)
all_watch = threading.Barrier(THREADS)


def reserve(name: str) -> None:
    with client.pipeline() as pipeline:
        pipeline.watch(name)
        all_watch.wait()
        if MODE == "timer":
            threading.Timer(FAR_SECONDS, pipeline.reset).start()
        left = int(client.get(name) or 0)  # core: stock x2
        pipeline.multi()
        pipeline.set(name, left - 1)
        pipeline.execute()


for number in range(THREADS):
    begin(reserve, f"item {number}")
stay()
