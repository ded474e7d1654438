"""Explains parties that stand still by the waits that only a cut can find.

Who can reach an event, and who has the shares of a semaphore, takes too long to find for each count of the unexplained parties.
The newest cut knows it. Such a wait explains its party while it lasts, if all parties that can end it stand still themselves,
explained. Otherwise the party stays unexplained: it may hang on one that never acts. So does one that waits for a holder that
has ended, but its text names the holder, as the verdict does.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from stilltrue.model import PartyName, has_ended
from stilltrue.protocol.report import LocalWait, PartyTarget
from stilltrue.protocol.requests.stacks import StandingParty
from stilltrue.runtime.introspection.cut.waits_at_cut import SeenAtCut
from stilltrue.runtime.waits.process_view import LiveProcessView


def explained_by_cut(found: list[StandingParty], cut: SeenAtCut, view: LiveProcessView) -> list[StandingParty]:
    """``found``, the parties that stand still, with the waits of the ``cut`` that explain some of them."""
    unexplained = {one.party for one in found if one.unexplained}
    still = {one.party for one in found}
    explained = _lasting(unexplained, cut, view)
    left = {party: wait for party, wait in explained.items() if any(map(has_ended, _enders(wait)))}
    while True:
        known = still - (unexplained - explained.keys())
        kept = {party: wait for party, wait in explained.items() if _enders(wait) <= known}
        if len(kept) == len(explained):
            break
        explained = kept
    named = [replace(one, blocked_in=left[one.party].what) if one.party in left else one for one in found]
    return [_explained(one, kept[one.party]) if one.party in kept else one for one in named]


def _lasting(parties: Container[PartyName], cut: SeenAtCut, view: LiveProcessView) -> dict[PartyName, LocalWait]:
    """The waits of ``parties`` that the cut has seen, that still last, and that only known parties can end."""
    waits = [(number, wait) for number, (wait, _) in cut.local.items() if wait.waiter in parties]
    frames = {ident: stack.frames[0] for ident, stack in view.stacks().items()} if waits else {}
    return {
        wait.waiter: wait for number, wait in waits if len(_enders(wait)) == len(wait.among) > 0 and cut.lasts(number, frames)
    }


def _enders(wait: LocalWait) -> frozenset[PartyName]:
    return frozenset(target.party for target in wait.among if isinstance(target, PartyTarget))


def _explained(one: StandingParty, wait: LocalWait) -> StandingParty:
    return replace(one, blocked_in=wait.what, held_by=tuple(sorted(_enders(wait))), unexplained=False)
