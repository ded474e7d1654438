"""xorq-labs/xorq 2243: an exchange runs in a pool, and waits for its writer and its reader, which want threads of the pool."""

import threading
from concurrent.futures import ThreadPoolExecutor

from field_program import FAR_SECONDS, MODE, join, stay

EXCHANGES = 2
executor = ThreadPoolExecutor(max_workers=EXCHANGES + 1 if MODE == "one_more" else EXCHANGES)
inner = ThreadPoolExecutor(max_workers=1) if MODE == "another_pool" else executor
all_run = threading.Barrier(EXCHANGES)


def exchange() -> None:
    all_run.wait()
    parts = [inner.submit(str, part) for part in ("writes", "reads")]
    for part in parts:
        part.result(FAR_SECONDS if MODE == "time_out" else None)  # core: flight x2


join("flight")
for _ in range(EXCHANGES):
    executor.submit(exchange)
stay()
