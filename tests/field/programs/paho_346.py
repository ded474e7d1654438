"""eclipse-paho/paho.mqtt.python 346: a callback runs under a client's lock, and takes the application's."""

import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay

delivering, publishing = threading.Event(), threading.Event()


class Client:
    """Delivers messages and publishes under one lock."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def loop(self, data: "Data") -> None:
        with self.lock:
            delivering.set()
            publishing.wait()
            data.on_message()

    def publish(self) -> None:
        if MODE == "patience":
            self.lock.acquire(timeout=FAR_SECONDS)
        with self.lock:  # core: meter
            pass


class Data:
    """What the application knows, under a lock."""

    def __init__(self, client: Client) -> None:
        self.client, self.lock = client, threading.Lock()

    def on_message(self) -> None:
        if MODE == "slow":
            threading.Event().wait(FAR_SECONDS)
        with self.lock:  # core: meter
            pass

    def send(self) -> None:
        if MODE == "outside":
            publishing.set()
            threading.Event().wait(FAR_SECONDS)
            self.client.publish()
            return
        with self.lock:
            delivering.wait()
            publishing.set()
            self.client.publish()


if __name__ == "__main__":
    join("meter")
    client = Client()
    data = Data(client)
    begin(data.send)
    begin(client.loop, data)
    publishing.wait()
    stay()
