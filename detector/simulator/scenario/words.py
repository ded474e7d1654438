"""Global states in the scenario language, written the same way in output and expectations."""

from __future__ import annotations

from collections.abc import Iterable

from detector.simulator.fifo.system import GlobalState, facts_in_words, in_words
from stilltrue.fifo import Channel
from stilltrue.model import Facts, Message, ProcessName


def global_state_in_words(state: GlobalState) -> list[str]:
    """One line a process, then one a channel, both sorted."""
    processes = [process_in_words(name, facts) for name, facts in sorted(state.states.items())]
    return processes + [channel_in_words(one, messages) for one, messages in sorted(state.channels.items())]


def process_in_words(name: ProcessName, facts: Facts) -> str:
    """``A balance=9000``."""
    return f"{name} {facts_in_words(facts)}".rstrip()


def channel_in_words(one: Channel, messages: Iterable[Message]) -> str:
    """``A -> B: transfer balance=1000, transfer balance=2000``, or ``A -> B: empty``."""
    return f"{one}: {', '.join(in_words(message) for message in messages) or 'empty'}"
