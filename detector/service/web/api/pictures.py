"""Pictures of stored snapshots, as SVG: each is drawn once for all who look at it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from detector.drawing.draw import Format
from detector.service.web.api.picture import picture_of
from stilltrue.v1 import detector_pb2 as pb

PICTURES_MAX = 32
PICTURE_CHARACTERS_MAX = 2**20
FORMS = {"svg": Format.SVG, "space-time": Format.SPACE_TIME}


class Pictures:
    """The newest pictures that were asked for."""

    def __init__(self) -> None:
        """None yet."""
        self._drawn: OrderedDict[tuple[int, int, Format, str], str] = OrderedDict()

    async def of(self, answer: pb.GetSnapshotResponse, form: Format, predicate: str = "") -> str:
        """A drawing of a stored snapshot, as its verdicts are by now."""
        key = (answer.summary.ref.id, len(answer.verdicts), form, predicate)
        if key in self._drawn:
            self._drawn.move_to_end(key)
            return self._drawn[key]
        drawn = await asyncio.to_thread(picture_of, answer, form, predicate)
        if len(drawn) <= PICTURE_CHARACTERS_MAX:
            self._drawn[key] = drawn
            while len(self._drawn) > PICTURES_MAX:
                self._drawn.popitem(last=False)
        return drawn
