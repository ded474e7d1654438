"""A worker is stopped by a flag and joined; it would see the flag after the next item, for which it waits."""

import queue
import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay


class Sender:
    """Sends messages in a thread of its own."""

    def __init__(self) -> None:
        self.messages: queue.Queue[str] = queue.Queue()
        self.running = True
        self.waits = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while self.running:
            self.waits.set()
            self.send(self.messages.get(timeout=FAR_SECONDS if MODE == "limit" else None))  # core: sender

    def send(self, message: str) -> None:
        """Send a message."""

    def stop(self) -> None:
        self.running = False
        self.thread.join()  # behind: sender


def send_later(sender: Sender) -> None:
    threading.Event().wait(FAR_SECONDS)
    sender.messages.put("more")


def main() -> None:
    sender = Sender()
    sender.waits.wait()
    if MODE == "fed":
        begin(send_later, sender)
    sender.stop()


join("sender")
begin(main)
stay()
