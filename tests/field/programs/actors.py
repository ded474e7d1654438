"""Two actors with a thread and a mailbox each: each asks the other, and waits for the reply while its mailbox fills."""

import queue
import threading
from concurrent.futures import Future

import grpc
from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import serve

FAR = threading.Event()


class Actor:
    """Handles one message at a time, in its own thread."""

    def __init__(self, name: str) -> None:
        self.mailbox: queue.Queue[tuple[int, Future[bytes]]] = queue.Queue()
        self.other = self
        begin(self.run, name=name)

    def ask(self, message: int) -> bytes:
        reply: Future[bytes] = Future()
        self.mailbox.put((message, reply))
        return reply.result(FAR_SECONDS if MODE == "time_out" else None)  # core: shop x2 # behind: shop

    def run(self) -> None:
        while True:
            message, reply = self.mailbox.get()
            try:
                reply.set_result(self.handle(message))
            except Exception as error:  # noqa: BLE001 - the asker gets it
                reply.set_exception(error)

    def handle(self, message: int) -> bytes:
        if MODE == "slow" and message == 1:
            FAR.wait(FAR_SECONDS)
        return self.other.ask(message + 1)

    def fail_waiting(self) -> None:
        FAR.wait(FAR_SECONDS)
        while not self.mailbox.empty():
            self.mailbox.get()[1].set_exception(RuntimeError("the actor has no time"))


class TimedActor(Actor):
    """Waits for each reply for a time."""

    def ask(self, message: int) -> bytes:
        reply: Future[bytes] = Future()
        timer = threading.Timer(FAR_SECONDS, reply.cancel)
        timer.daemon = True
        timer.start()
        self.mailbox.put((message, reply))
        return reply.result()


def order(request: bytes, context: grpc.ServicerContext) -> bytes:
    return orders.ask(0)


join("shop")
kind = TimedActor if MODE == "timer" else Actor
orders, stock = kind("orders"), kind("stock")
orders.other, stock.other = stock, orders
call = serve(order)
begin(lambda: call(b""))  # behind: shop
if MODE == "supervised":
    begin(orders.fail_waiting)
stay()
