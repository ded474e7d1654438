"""Systems that wait by other means than calls and locks, and tell the agent in two calls."""

from __future__ import annotations

from tests.field.entry import Entry

ENTRIES = (
    Entry(
        program="oh_my_pi_6031",
        source="can1357/oh-my-pi 6031",
        library="asyncio, `agent.answers`",
        what="An agent waits for its child to end, and the child for an answer from the agent, which reads no mail meanwhile.",
        near={
            "time_out": "the child's question has a timeout",
            "reads_its_mail": "another task of the parent answers its mail",
        },
    ),
    Entry(
        program="restate_199",
        source="restatedev/restate 199",
        library="asyncio, `agent.answers`",
        what="Two keyed services hold their key and call each other; a key takes one call at a time.",
        near={
            "time_out": "the inner calls have a timeout",
            "another_key": "the inner call is for another key",
            "one_way": "the inner calls are one-way: nobody waits for them",
        },
    ),
    Entry(
        program="orleans_6219",
        source="dotnet/orleans 6219",
        library="fcntl.flock, `agent.holding`",
        what="Five transactions on five processes have each locked one account and wait for the next one's.",
        near={"time_out": "one of the waits has a timeout", "in_order": "all lock the account with the lower number first"},
        processes=("silo-a", "silo-b", "silo-c", "silo-d", "silo-e"),
    ),
    Entry(
        program="kuma_5373",
        source="kumahq/kuma 5373",
        library="asyncio streams, `agent.answers`",
        what="Both ends of a multiplexed stream write until its windows are full, and would read only afterwards.",
        near={"time_out": "the writes have a timeout", "reads_too": "a separate task reads at one of the ends, later"},
    ),
)
