"""A function whose results are cached, one caller at a time for each key, calls itself for a key that is being computed."""

import threading

from cachetools import LRUCache, cached
from field_program import FAR_SECONDS, MODE, begin, join, stay

FAR = threading.Event()
PARTS = {"car": ["engine", "wheel"], "engine": ["valve"], "valve": [] if MODE == "slow" else ["engine"], "wheel": []}


@cached(LRUCache(maxsize=16), condition=threading.Condition())
def weight(part: str) -> int:
    if MODE == "slow" and part == "valve":
        FAR.wait(FAR_SECONDS)
    if MODE == "in_time" and part == "valve":
        asked = begin(weight, "engine")
        asked.join(FAR_SECONDS)
        return 1
    return 1 + sum(weight(other) for other in PARTS[part])  # core: plans


join("plans")
begin(weight, "car")
stay()
