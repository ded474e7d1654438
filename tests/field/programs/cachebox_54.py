"""awolverp/cachebox 54: a cached function calls itself for the key that it computes, under the cache's lock for that key."""

import threading

import cachebox
from field_program import FAR_SECONDS, MODE, begin, join, stay

FAR = threading.Event()


@cachebox.cached(cachebox.TTLCache(10, 60))
def flag(name: str) -> bool:
    if MODE == "slow" or (MODE == "other_key" and name == "verbose"):
        FAR.wait(FAR_SECONDS)
    if MODE == "in_time":
        asked = begin(log, name)
        asked.join(FAR_SECONDS)
    return log(name)


def log(name: str) -> bool:
    return flag("verbose" if MODE == "other_key" and name != "verbose" else name)  # core: flags


join("flags")
begin(flag, "beta")
stay()
