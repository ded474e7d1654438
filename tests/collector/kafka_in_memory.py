"""Kafka and the assembly in this process: the same records, keys and acknowledgements, without a broker."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from detector.assembly.cluster import REPORTS, RESULTS, Cluster, RecordsUnavailableError
from detector.assembly.records import REPORT, report_of
from detector.assembly.step import step


class KafkaInMemory:
    """Stands for the module ``detector.assembly.kafka``. ``refuses``: whose reports are not acknowledged.

    ``down``: the reason why it does not answer at all.
    """

    def __init__(self) -> None:
        self.records: dict[str, list[bytes]] = defaultdict(list)
        self.asked: dict[str, int] = defaultdict(int)
        self.done: set[str] = set()
        self.refuses = b""
        self.assembling = True
        self.down = ""
        self.takers: list[Callable[[bytes], None]] = []
        self.doubled = 1
        outer = self

        class RecordProducer:
            def __init__(self, cluster: Cluster) -> None:
                assert cluster.topic(REPORTS) == "stilltrue.reports"

            async def put(self, topic: str, key: str, value: bytes) -> None:
                assert topic == REPORTS
                await asyncio.sleep(0)
                if outer.refuses and value[:1] == REPORT and outer.refuses == _instance(value):
                    raise RecordsUnavailableError("Kafka is down")
                outer.records[key] += [value] * outer.doubled
                outer.assemble(key)

            def check(self) -> None:
                if outer.down:
                    raise RecordsUnavailableError(outer.down)

            def close(self) -> None:
                pass

        class RecordConsumer:
            def __init__(self, cluster: Cluster, topic: str, take: Callable[[bytes], None]) -> None:
                assert topic == RESULTS
                self.take = take
                outer.takers.append(take)

            def close(self) -> None:
                outer.takers.remove(self.take)

        self.RecordProducer, self.RecordConsumer = RecordProducer, RecordConsumer

    def make_topics(self, cluster: Cluster) -> None:
        pass

    def assemble(self, key: str) -> None:
        """What the assembly would do with the records of this snapshot."""
        if not self.assembling or key in self.done:
            return
        loop: Any = asyncio.get_running_loop()
        found = step(self.records[key], asked=self.asked[key])
        if found is None:
            return
        self.asked[key] = found.asked
        if found.result is not None:
            self.done.add(key)
        for take in self.takers * self.doubled:
            loop.call_soon(take, found.record)

    def reports(self) -> int:
        return sum(record[:1] == REPORT for records in self.records.values() for record in records)


def _instance(record: bytes) -> bytes:
    return report_of(record).process.instance.encode()
