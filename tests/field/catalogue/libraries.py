"""Libraries: deadlocks in what applications use for logging, metrics, jobs and traces."""

from __future__ import annotations

from tests.field.entry import Entry

ENTRIES = (
    Entry(
        program="otel_4635",
        source="open-telemetry/opentelemetry-python 4635",
        library="logging, concurrent.futures",
        what="A reconfiguration of logging flushes a handler under its lock; the exporter waits for a thread that wants it.",
        near={
            "limit": "`result` has a timeout",
            "silent": "the thread is slow, and does not log yet",
            "beside": "the handler exports in a thread, and does not wait for it",
        },
    ),
    Entry(
        program="prometheus_1076",
        source="prometheus/client_python 1076",
        library="prometheus_client",
        what="A collector that is being registered registers another metric; the lock of the registry is not reentrant.",
        near={
            "other_registry": "the other metric is in another registry",
            "slow": "the collector is slow",
        },
        modules=("prometheus_client",),
    ),
    Entry(
        program="apscheduler_268",
        source="agronholm/apscheduler 268",
        library="concurrent.futures, threading",
        what="A scheduler shuts its executor down under its lock; a job that is running asks the scheduler.",
        near={
            "limit": "the job's wait for the lock has a timeout",
            "slow": "the job is slow",
            "does_not_ask": "the job does not need the lock",
        },
    ),
    Entry(
        program="opencensus_1112",
        source="census-instrumentation/opencensus-python 1112",
        library="queue, threading",
        what="A flush waits for an event that a worker would set, and the worker has ended before.",
        near={
            "limit": "`wait` has a timeout",
            "slow": "the worker has not ended, but is slow",
        },
    ),
    Entry(
        program="mlflow_25264",
        source="mlflow/mlflow 25264",
        library="queue",
        what="A task is put into a queue after its consumer has ended; a flush joins the queue.",
        near={
            "late": "another consumer takes the task later",
            "empty": "no task is put into the queue late",
        },
    ),
    Entry(
        program="marin_4098",
        source="marin-community/marin 4098",
        library="threading",
        what="The program is over, but a thread that waits for an event which nobody else has keeps the process alive.",
        near={"timeout": "the wait has a timeout", "stopped": "another thread sets the event later"},
        behind_elsewhere={"worker": 1},
    ),
    Entry(
        program="aiosqlite_299",
        source="omnilib/aiosqlite 299",
        library="queue, threading",
        what="A program is over, but a connection that it has not closed has a thread that waits for the next statement.",
        near={
            "closed": "another thread closes the connection later",
            "daemon": "the thread is a daemon, and another one, which is slow, keeps the program alive",
            "kept": "the connection closes itself when another thread, which is slow, ends",
        },
        behind_elsewhere={"notes": 1},
    ),
)
