"""python/cpython 96727: a handler asks for a logger while logging is configured anew, which waits for the handler's lock."""

import logging
import logging.config
import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay

FAR, emitting, configuring = threading.Event(), threading.Event(), threading.Event()


class Upload(logging.Handler):
    """Sends records elsewhere by a library, which logs, too."""

    def emit(self, record: logging.LogRecord) -> None:
        emitting.set()
        if MODE == "same_thread":
            configure()
        configuring.wait()
        if MODE == "slow":
            FAR.wait(FAR_SECONDS)
            return
        logging.getLogger(f"uploader.{record.msg}").debug("sent")  # core: site


class Console(logging.Handler):
    """The first to be closed when logging is configured anew."""

    def flush(self) -> None:
        configuring.set()


def configure() -> None:
    emitting.wait()
    logging.config.dictConfig({"version": 1})  # core: site


join("site")
logger = logging.getLogger("shop")
handlers = [Upload(), Console()]
logger.addHandler(handlers[0])
if MODE != "same_thread":
    begin(configure)
begin(logger.error, "ordered")
stay()
