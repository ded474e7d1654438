"""The table of all mutants: the rule that each breaks, how, the worlds in which it matters, and the promises that catch it."""

from __future__ import annotations

from typing import Any

from detector.core import scope
from detector.core.protocol import assembler, clock_offsets
from detector.core.protocol.initiator import Initiator
from detector.core.snapshot import Snapshot
from detector.core.verification import amendment as look_amendment
from detector.core.verification.verifier import Verifier
from detector.core.waits import resolution
from detector.core.waits.cancellation import Cancellation
from detector.core.waits.channels import Channels, _PoolView
from detector.core.waits.resolution import Resolution
from detector.graph import victims
from detector.graph.reduction import Reduction
from detector.predicates.evidence import freed_by_abort
from detector.predicates.lost_message import LostMessage
from detector.predicates.phase_ended import PhaseEnded
from detector.simulator.mutants import constant, in_cures, in_detector, in_recorder
from detector.simulator.mutants.hunt import Break, Breaking, Mutant
from detector.simulator.simulated_detector import SimulatedDetector
from stilltrue.protocol import local_state
from stilltrue.protocol.books.answered_calls import CallerMemory, Callers
from stilltrue.protocol.books.calls_in_doubt import Doubts
from stilltrue.protocol.local_state import LocalState
from stilltrue.protocol.observation import Observation
from stilltrue.protocol.recorder import Recorder


def _mutant(rule: str, name: str, worlds: str, promises: str, *breaks: tuple[Any, str, Breaking]) -> Mutant:
    return Mutant(
        rule=rule,
        name=name,
        breaks=tuple(Break(owner=owner, attribute=attribute, by=by) for owner, attribute, by in breaks),
        worlds=tuple(worlds.split()),
        promises=frozenset(promises.split(", ")),
    )


MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "1",
        "the colour is ignored",
        "tokens fans pools",
        "orphans, theorem 1, safe",
        (Recorder, "coloured", constant.nothing),
    ),
    _mutant(
        "1",
        "a reply of a newer colour bears no stamp",
        "tokens fans pools",
        "orphans, theorem 1, safe",
        (Recorder, "replied", in_recorder.silent_once_known),
    ),
    _mutant(
        "2",
        "a process cuts after it has handled the message",
        "tokens fans pools",
        "orphans, theorem 1, safe",
        (Recorder, "arrived", in_recorder.arrives_then_cuts),
        (Recorder, "settled", in_recorder.settles_then_cuts),
    ),
    _mutant(
        "2",
        "a cut serves earlier snapshots too",
        "failures tokens",
        "orphans, theorem 1",
        (Recorder, "_cut", in_recorder.serves_all_before),
    ),
    _mutant("3", "the floor is too high", "pools fans tokens", "orphans, safe", (Recorder, "sent", in_recorder.high_floor)),
    _mutant(
        "3", "the server forgets what it has answered", "tokens pools", "safe", (CallerMemory, "answered", constant.nothing)
    ),
    _mutant("4", "a reply in transit is a wait", "tokens pools", "safe", (Channels, "__init__", in_detector.sees_no_reply)),
    _mutant(
        "4",
        "a call behind a full pool waits for its first worker only",
        "pools",
        "safe, exact",
        (Channels, "_held", in_detector.first_worker),
    ),
    _mutant("4", "a full pool is never full", "pools", "sound", (_PoolView, "full", constant.never)),
    _mutant(
        "4",
        "an earlier responder may have the call",
        "pools fans",
        "safe, theorem 1, exact",
        (Channels, "_unseen", in_detector.blocked_by_earlier_servers),
    ),
    _mutant(
        "4",
        "a request item in transit is a wait",
        "streams",
        "safe",
        (Resolution, "_next_item", in_detector.next_item_counts_no_items),
    ),
    _mutant(
        "4", "a reply item in transit is a wait", "streams", "safe", (Channels, "locate", in_detector.reply_counts_no_items)
    ),
    _mutant(
        "4",
        "no copy is in transit while a server has another",
        "hedges",
        "safe",
        (Channels, "_hedged", in_detector.no_copy_in_transit),
    ),
    _mutant(
        "4",
        "a server with a call still has its caller",
        "repeats",
        "safe",
        (Channels, "_held", in_detector.never_repeated),
    ),
    _mutant(
        "4",
        "a server that lost its caller is still waited for",
        "repeats",
        "safe, sound",
        (Recorder, "hung_up", constant.nothing),
    ),
    _mutant(
        "5", "the last call sent counts as an orphan", "pools", "orphans", (Channels, "orphans", in_detector.strict_orphans)
    ),
    _mutant(
        "5",
        "contradicting reports both count",
        "forgeries",
        "orphans",
        (assembler, "set_aside", in_detector.sets_none_aside),
    ),
    _mutant(
        "5",
        "every server of a contradiction is set aside",
        "forgeries",
        "orphans",
        (assembler, "set_aside", in_detector.every_server),
    ),
    _mutant("6", "an explicit marker is ignored", "pools", "live", (Recorder, "marked", constant.nothing)),
    _mutant(
        "7", "facts change one step after their message", "tokens", "safe", (Recorder, "sent", in_recorder.sends_then_changes)
    ),
    _mutant("7", "taken facts count as still in transit", "tokens", "safe", (Recorder, "_take", constant.nothing)),
    _mutant("8", "a failed call is over", "failures deadlines", "safe", (Recorder, "settled", in_recorder.no_doubt)),
    _mutant(
        "8",
        "a doubt is settled without a record",
        "failures deadlines",
        "safe",
        (Resolution, "settled_doubts", in_detector.settles_all),
    ),
    _mutant(
        "8",
        "a failed call is still waited for",
        "deadlines failures",
        "safe, sound, exact",
        (Recorder, "settled", in_detector.stays_outstanding),
    ),
    _mutant(
        "10", "there is no second look", "store streams", "live", (SimulatedDetector, "_suspicion", in_detector.suspects_none)
    ),
    _mutant("10", "a changed wait counts as unchanged", "store", "safe", (local_state, "_look_at", in_detector.all_unchanged)),
    _mutant(
        "cancellation", "no caller ever cancels", "cancels", "safe, exact", (Cancellation, "ways", in_detector.never_cancelled)
    ),
    _mutant(
        "cancellation 2",
        "a waiting caller is never cancelled",
        "cancels",
        "exact, safe",
        (Cancellation, "_callers", in_detector.callers_never_cancelled),
    ),
    _mutant(
        "cancellation 3",
        "an abandoned call is served forever",
        "cancels",
        "safe, exact",
        (Cancellation, "_callers", in_detector.serves_cancelled_forever),
    ),
    _mutant(
        "section 4",
        "a reactive process that serves is idle",
        "failures deadlines",
        "safe",
        (LocalState, "activity", in_recorder.reactive_is_idle),
        (Verifier, "_idleness", in_detector.never_doubted),
    ),
    _mutant(
        "section 5", "a wait with a deadline lasts forever", "deadlines", "safe", (resolution, "_wait", in_detector.no_deadline)
    ),
    _mutant(
        "section 5",
        "a k-of-n wait needs all",
        "fans",
        "safe, theorem 1",
        (resolution, "_k_of_n", in_detector.needs_all),
    ),
    _mutant("section 5", "a k-of-n wait needs one", "fans", "exact, sound", (Resolution, "_resolve", in_detector.needs_one)),
    _mutant(
        "section 5",
        "a lock with shares left is waited for",
        "store",
        "safe, sound",
        (Resolution, "_resource", in_detector.any_holder),
    ),
    _mutant("section 6", "the missing are free", "failures churn", "sound", (Snapshot, "of_missing", in_detector.none_missing)),
    _mutant(
        "section 6", "the missing never move", "deadlines", "exact, safe", (Reduction, "further", in_detector.releases_none)
    ),
    _mutant(
        "section 6",
        "a stale report counts",
        "failures tokens fans",
        "theorem 1, sound, orphans",
        (Initiator, "reported", in_detector.accepts_stale),
    ),
    _mutant(
        "clocks",
        "members' clocks are believed",
        "clocks",
        "safe, stable, live, sound",
        (clock_offsets, "in_detector_time", in_detector.believes_clocks),
    ),
    _mutant(
        "section 4",
        "waits for tasks are not reported",
        "tasks",
        "exact, sound, live",
        (Observation, "merge_waits", in_detector.drops_observed_waits),
    ),
    _mutant("bounds", "doubts are dropped silently", "bounds", "safe", (Doubts, "dropped", constant.never)),
    _mutant(
        "bounds",
        "a caller is forgotten silently",
        "bounds",
        "safe",
        (Callers, "begin", in_recorder.forgets_callers_quietly),
    ),
    _mutant(
        "bounds",
        "answers are forgotten silently",
        "bounds",
        "safe",
        (CallerMemory, "seen", in_recorder.forgets_answers_quietly),
    ),
    _mutant(
        "section 6",
        "a lost member is no longer a member",
        "detectors",
        "safe, sound",
        (Initiator, "lost", in_detector.lost_is_gone),
    ),
    _mutant(
        "scopes",
        "parties outside the scope count as stuck",
        "scopes",
        "safe",
        (scope, "restricted", in_detector.scope_has_all_waits),
    ),
    _mutant(
        "lost-message",
        "messages are counted while a process is active",
        "counts",
        "safe, live",
        (LostMessage, "evaluate", in_detector.counts_while_active),
    ),
    _mutant(
        "phase-ended",
        "an active process has finished its phase",
        "counts",
        "safe, live",
        (PhaseEnded, "_finished", in_detector.finishes_while_active),
    ),
    _mutant(
        "cancellation 6",
        "a task that a handler awaits is not cancelled with it",
        "jobs",
        "safe, exact, live",
        (Cancellation, "_may_be_cancelled", in_detector.only_handlers),
    ),
    _mutant(
        "10",
        "what a look leaves in doubt counts as certain",
        "jobs",
        "safe, exact",
        (look_amendment, "_amended", in_detector.doubts_nothing),
    ),
    _mutant(
        "10",
        "closing a channel or stopping a server is ignored",
        "closers",
        "safe, exact",
        (look_amendment, "_amended", in_detector.finds_no_way_out),
    ),
    _mutant(
        "10",
        "a way out that was found is ignored",
        "tasks",
        "safe, exact",
        (look_amendment, "_amended", in_detector.finds_no_way_out),
    ),
    _mutant("cure 1", "any single victim frees all", "cures", "cure", (victims, "_frees", constant.always)),
    _mutant(
        "cure 2",
        "the preview frees all stuck parties",
        "cures",
        "cure",
        (freed_by_abort, "freed_by", in_cures.frees_all),
    ),
    _mutant(
        "cure 2",
        "the preview frees only the waiters of a victim",
        "cures",
        "cure",
        (freed_by_abort, "freed_by", in_cures.frees_direct_waiters),
    ),
    _mutant(
        "cure 4",
        "a victim that has moved on is aborted",
        "cures",
        "cure, safe",
        (local_state, "_look_at", in_detector.all_unchanged),
    ),
)
