"""Systems that wait by other means than calls and locks, and tell the agent in two calls."""

from __future__ import annotations

from tests.field.entry import Entry

ENTRIES = (
    Entry(
        program="oh_my_pi_6031",
        source="can1357/oh-my-pi 6031",
        library="asyncio, `agent.answers`",
        what="An agent waits for its child to end, and the child for an answer of the agent, which reads no mail meanwhile.",
        near={
            "time_out": "the child's question has a timeout",
            "reads_its_mail": "another task of the parent answers its mail",
        },
    ),
)
