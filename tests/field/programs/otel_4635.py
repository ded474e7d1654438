"""open-telemetry/opentelemetry-python 4635: a reconfiguration of logging flushes a handler, whose exporter logs in a thread."""

import logging
import logging.config
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from field_program import FAR_SECONDS, MODE, begin, join, stay


class Exporter:
    """Sends records in batches; a helper thread refreshes the credentials first."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)

    def export(self, batch: Sequence[str]) -> None:
        refreshed = self._pool.submit(refresh)
        refreshed.result(FAR_SECONDS if MODE == "limit" else None)  # core: service


def refresh() -> None:
    if MODE == "silent":
        threading.Event().wait(FAR_SECONDS)
    logging.getLogger(f"exporter.credentials.{threading.get_ident()}").debug("refreshing")  # core: service


class Handler(logging.Handler):
    """A handler that exports what it has when it is flushed."""

    def __init__(self, exporter: Exporter) -> None:
        super().__init__()
        self._exporter = exporter

    def emit(self, record: logging.LogRecord) -> None:
        del record

    def flush(self) -> None:
        if MODE == "beside":
            threading.Thread(target=self._exporter.export, args=([],), daemon=True).start()
        else:
            self._exporter.export([])


def reconfigure() -> None:
    logging.config.dictConfig({"version": 1, "root": {"level": "INFO"}})


join("service")
logging.getLogger("app").addHandler(Handler(Exporter()))
begin(reconfigure)
stay()
