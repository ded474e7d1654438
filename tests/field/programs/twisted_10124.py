"""twisted/twisted 10124: the reactor has stopped before a thread of its pool calls back into it, and waits for the pool."""

import time

from field_program import FAR_SECONDS, MODE, begin, join, stay
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import blockingCallFromThread, deferToThread


def answer() -> "Deferred[str]":
    result: Deferred[str] = Deferred()
    reactor.callLater(FAR_SECONDS if MODE == "running" else 0.1, result.callback, "done")
    return result


def ask() -> None:
    time.sleep(FAR_SECONDS if MODE == "slow" else 1)
    blockingCallFromThread(reactor, answer)  # core: site


def run() -> None:
    reactor.callWhenRunning(deferToThread, ask)
    if MODE != "running":
        reactor.callLater(0.3, reactor.stop)
    reactor.run(installSignalHandlers=False)  # core: site


join("site")
begin(run)
stay()
