"""Finds parties for which others wait, and which have waited for long for a resource that no member is known to have.

Such a party is a session of a database, say, that is idle in a transaction. Its client may end the wait at any time, so it does
not block (rule 4 of docs/design.md). But if the client waits for a member, too, that is a deadlock that no answer reports. So a
FALSE names these parties.

Rules:

1. A wait counts if it is for resources only, has no deadline, and has lasted for ``SECONDS_MIN``. No report says who has them.
2. A party counts if another waits for it: a session that is idle in a transaction and blocks nobody is ordinary. So does one
   that serves a call without a deadline and has sent nothing of the reply: its caller waits. It may wait for a process that is
   no member, such as that of a ``multiprocessing.Manager``.
3. While a member is missing, nothing is named: the member may have the resource, and the answers say that it is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from detector.core.snapshot import Snapshot
from detector.predicates.evidence.explanation import listed, without_place
from detector.service.detection.membership.unreceived_calls import SECONDS_MIN
from stilltrue.model import PartyName, ProcessName
from stilltrue.protocol.report import LocalWait, PartyTarget, Report, ResourceTarget, ServedCall


def unheld_resources(view: Snapshot, reports: Mapping[ProcessName, Report]) -> dict[PartyName, str]:
    """The resource that each of these parties of ``view`` waits for; times are the detector's."""
    waits = [wait for name in view.processes if (report := reports.get(name)) is not None for wait in report.waits]
    until = (view.ref.ended or 0.0) - SECONDS_MIN
    waiting = [(wait, resources) for wait in waits if (resources := _resources(wait, until))]
    if not waiting or view.missing:
        return {}
    held = {hold.resource for report in reports.values() for hold in report.holds}
    awaited = {target.party for wait in waits for target in wait.among if isinstance(target, PartyTarget)}
    awaited |= {call.party for name in view.processes if (report := reports.get(name)) is not None for call in _due(report)}
    return {
        wait.waiter: " or ".join(resources)
        for wait, resources in waiting
        if wait.waiter in awaited and held.isdisjoint(resources)
    }


def _due(report: Report) -> Iterator[ServedCall]:
    """The calls that a process serves and of whose reply it has sent nothing (rule 2)."""
    return (one for one in report.served if one.serving and one.deadline is None and not one.sent and not one.hung_up)


def _resources(wait: LocalWait, until: float) -> tuple[str, ...]:
    """What a party has waited for since before ``until``, if these are resources only (rule 1)."""
    if wait.deadline is not None or wait.since is None or wait.since > until:
        return ()
    found = tuple(target.resource for target in wait.among if isinstance(target, ResourceTarget))
    return found if len(found) == len(wait.among) else ()


def as_remark(unheld: Mapping[PartyName, str]) -> str:
    """These parties, as a remark on a FALSE."""
    named = listed([f"{party} waits for {without_place(resource)}" for party, resource in unheld.items()])
    return f"no member is known to have what ends {len(unheld)} of the waits that others depend on ({named})"
