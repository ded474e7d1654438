"""An attribute that is computed once for each instance, and keeps no thread waiting."""

from __future__ import annotations

import threading

from stilltrue.runtime.cached_attribute import CachedAttribute

SECONDS_MAX = 10.0


class _View:
    def __init__(self, may_end: threading.Event) -> None:
        self._may_end = may_end
        self.computing = threading.Event()
        self.computed = 0

    @CachedAttribute
    def waits(self) -> list[str]:
        """Computed once."""
        self.computing.set()
        assert self._may_end.wait(SECONDS_MAX)
        self.computed += 1
        return ["a wait"]


def _done() -> threading.Event:
    done = threading.Event()
    done.set()
    return done


def test_it_is_computed_once_for_each_instance() -> None:
    one, other = _View(_done()), _View(_done())
    assert one.waits is one.waits
    assert one.waits is not other.waits
    assert (one.computed, other.computed) == (1, 1)


def test_a_thread_that_computes_it_keeps_no_other_instance_waiting() -> None:
    slow, quick = _View(threading.Event()), _View(_done())
    thread = threading.Thread(target=lambda: slow.waits, daemon=True)
    thread.start()
    assert slow.computing.wait(SECONDS_MAX)
    other = threading.Thread(target=lambda: quick.waits, daemon=True)
    other.start()
    other.join(SECONDS_MAX)
    assert quick.computed == 1
    slow._may_end.set()
    thread.join(SECONDS_MAX)


def test_it_has_the_description_of_its_function() -> None:
    assert _View.waits.__doc__ == "Computed once."
