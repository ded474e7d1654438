"""Waits that the application declares because the agent cannot see them: for a row lock, a lease, another process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stilltrue.model import PartyName, WaitNumber
from stilltrue.protocol.report import PartyTarget, ResourceTarget, Target
from stilltrue.runtime.session import Session


def target(thing: str | Target) -> Target:
    """``thing`` as a target; a string is the global name of a resource."""
    return ResourceTarget(resource=thing) if isinstance(thing, str) else thing


@contextmanager
def waiting_for(
    session: Session, things: tuple[str | Target, ...], needs: int | None, what: str, timeout: float | None, until: float | None
) -> Iterator[None]:
    """Inside the block, the current party waits for ``needs`` of ``things`` (None: all)."""
    among = tuple(map(target, things))
    needed = len(among) if needs is None else needs
    if not 1 <= needed <= len(among):
        raise ValueError(f"waiting_for: needs is {needed}, but there are {len(among)} targets")
    wait: WaitNumber | None = None
    try:
        wait = session.live.waits(
            session.parties.current(),
            among,
            needs=needed,
            timeout=timeout,
            deadline=until,
            uncoloured=not all(isinstance(one, PartyTarget) for one in among),
            what=what,
        )
    except Exception:  # noqa: BLE001 - fail open
        session.live.report_failure("starting a wait")
    try:
        yield
    finally:
        session.end_wait(wait)


@contextmanager
def holding(session: Session, resource: str, capacity: int) -> Iterator[None]:
    """Inside the block, the current party holds one share of ``resource``."""
    party: PartyName | None = None
    try:
        holder = session.parties.current()
        session.live.holds(holder, resource, capacity)
        party = holder
    except Exception:  # noqa: BLE001 - fail open
        session.live.report_failure("taking a share")
    try:
        yield
    finally:
        if party is not None:
            try:
                session.live.releases(party, resource)
            except Exception:  # noqa: BLE001 - fail open
                session.live.report_failure("releasing a share")
