"""hendrix/hendrix 140: a function that runs in the reactor's thread asks the reactor to run another, and waits for it."""

import threading
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, join, stay
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import blockingCallFromThread, deferToThread

FAR = threading.Event()


def get() -> Any:
    if MODE == "slow":
        FAR.wait(FAR_SECONDS)
    return Deferred() if MODE == "later" else 1


def render() -> None:
    blockingCallFromThread(reactor, get)  # core: site


def main() -> None:
    if MODE == "stuck":
        reactor.callWhenRunning(render)
    else:
        reactor.callWhenRunning(deferToThread, render)
    reactor.run(installSignalHandlers=False)


join("site")
begin(main)
stay()
