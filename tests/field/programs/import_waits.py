"""Widely known: during its import, a module starts a thread and waits for it; the thread imports the module."""

import importlib
import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay

RATES = {"EUR": 1.0}


def load() -> float:
    """Run by a thread: it needs what the module has, which is still being imported."""
    if MODE == "by_argument":
        threading.Event().wait(FAR_SECONDS)
        return RATES["EUR"]
    rates: dict[str, float] = importlib.import_module("import_waits").RATES  # core: ledger
    return rates["EUR"]


if __name__ == "__main__":
    join("ledger")
    begin(importlib.import_module, "import_waits")
    stay()
else:
    loading = threading.Thread(target=load, daemon=True)
    loading.start()
    loading.join(FAR_SECONDS if MODE == "time_out" else None)  # core: ledger
