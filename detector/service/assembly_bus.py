"""The coordinator's connection to Kafka (or the store used instead): records for the assembly, and its results."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from detector.assembly.cluster import REPORTS, RESULTS, client
from detector.ops.logs import Log
from detector.ops.process.stop_signal import ended_by_ctrl_c
from detector.service.detection.driver import Driver
from detector.service.detection.remote_assembly import Put
from detector.service.settings import Settings

if TYPE_CHECKING:
    from detector.assembly.kafka import RecordConsumer, RecordProducer


class AssemblyBus:
    """Writes to one topic and reads from the other; does nothing without Kafka."""

    def __init__(self, settings: Settings, log: Log) -> None:
        """Create the topics, which may take seconds. Raises :class:`~detector.assembly.cluster.RecordsUnavailableError`."""
        self._producer: RecordProducer | None = None
        self._consumer: RecordConsumer | None = None
        if settings.kafka:
            self._cluster = settings.cluster()
            log.info(f"connecting to {self._cluster.kind}", address=settings.kafka)
            with ended_by_ctrl_c():
                client(self._cluster).make_topics(self._cluster)
            self._producer = client(self._cluster).RecordProducer(self._cluster)

    @property
    def put(self) -> Put | None:
        """Function that writes a record for the assembly; None without Kafka."""
        return None if self._producer is None else partial(self._producer.put, REPORTS)

    def listen(self, driver: Driver) -> None:
        """Pass the assembly's results to the driver from now on."""
        if driver.remote_assembly is not None:
            self._consumer = client(self._cluster).RecordConsumer(self._cluster, RESULTS, driver.remote_assembly.take)

    def close(self) -> None:
        """Flush pending records and close."""
        for each in (self._consumer, self._producer):
            if each is not None:
                each.close()
