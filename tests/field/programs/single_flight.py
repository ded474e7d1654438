"""The first caller of a key computes it while the others wait; the computation asks the service, which needs the key."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

import grpc
from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import serve

FAR = threading.Event()
PARTS = {b"engine": b"valve", b"valve": b"" if MODE == "slow" else b"engine"}


class SingleFlight:
    """Computes each key once at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[bytes, Future[bytes]] = {}

    def get(self, key: bytes, compute: Callable[[bytes], bytes]) -> bytes:
        with self._lock:
            flight = self._flights.get(key)
            is_first = flight is None
            if flight is None:
                flight = self._flights[key] = Future()
        if not is_first:
            return flight.result(FAR_SECONDS if MODE == "time_out" else None)  # core: prices
        try:
            found = compute(key)
        except BaseException as error:
            flight.set_exception(error)
            raise
        else:
            flight.set_result(found)
            return found
        finally:
            with self._lock:
                del self._flights[key]

    def fail_all(self) -> None:
        for flight in list(self._flights.values()):
            flight.set_exception(TimeoutError())


def compute(part: bytes) -> bytes:
    if not PARTS[part]:
        FAR.wait(FAR_SECONDS)
    return call(PARTS[part], timeout=FAR_SECONDS if MODE == "deadline" else None)  # core: prices x2


def sweep() -> None:
    FAR.wait(FAR_SECONDS)
    prices.fail_all()


def price(part: bytes, context: grpc.ServicerContext) -> bytes:
    return prices.get(part, compute)


def price_or_stop(part: bytes, context: grpc.ServicerContext) -> bytes:
    if part == b"stop":
        prices.fail_all()
    return price(part, context)


prices = SingleFlight()
join("prices")
call = serve(price_or_stop if MODE == "request" else price, workers=8)
begin(lambda: call(b"engine"))  # behind: prices
if MODE == "swept":
    begin(sweep)
elif MODE == "timer":
    timer = threading.Timer(FAR_SECONDS, prices.fail_all)
    timer.daemon = True
    timer.start()
stay()
