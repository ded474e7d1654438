"""pika/pika 1686: a consumer's callback closes its connection: it joins the loop, which joins the callback's thread."""

import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay


class Connection:
    """A loop in one thread, and a worker that runs the consumers' callbacks in another."""

    def __init__(self) -> None:
        self._closing = threading.Event()
        self._worker = threading.Thread(target=self._deliver, daemon=True)
        self._loop = begin(self._run)
        self._worker.start()

    def _run(self) -> None:
        self._closing.wait()
        self._worker.join(FAR_SECONDS if MODE == "time_out" else None)  # core: consumer

    def _deliver(self) -> None:
        if MODE == "from_outside":
            threading.Event().wait(FAR_SECONDS)
        else:
            self.close()

    def close(self) -> None:
        self._closing.set()
        if MODE != "at_once":
            self._loop.join()  # core: consumer


join("consumer")
connection = Connection()
if MODE == "from_outside":
    begin(connection.close)
stay()
