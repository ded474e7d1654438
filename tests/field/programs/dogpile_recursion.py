"""A function whose results dogpile caches, one caller at a time for each key, calls itself for a key that is being computed."""

import threading
import time

from dogpile.cache import make_region
from field_program import FAR_SECONDS, MODE, begin, join, stay

PARTS = {"car": ["engine", "wheel"], "engine": ["valve"], "valve": [] if MODE == "slow" else ["engine"], "wheel": []}
region = make_region().configure("dogpile.cache.memory")


@region.cache_on_arguments()
def weight(part: str) -> int:
    if MODE == "slow" and part == "valve":
        threading.Event().wait(FAR_SECONDS)
    if MODE == "in_time" and part == "valve":
        asked = begin(weight, "engine")
        asked.join(FAR_SECONDS)
        return 1
    return 1 + sum(weight(other) for other in PARTS[part])  # core: plans


def release_later() -> None:
    time.sleep(FAR_SECONDS)
    region._mutex("__main__:weight|engine").release()


join("plans")
begin(weight, "car")
if MODE == "released":
    begin(release_later)
stay()
