"""The columns of the archive's four tables, and their version; docs/archive.md explains them to readers.

Rules:

1. A column is only ever added, with null for "not known then"; none changes its type or meaning. So old files read forever.
2. Each file's footer says which table and which version of the columns it holds.
3. A snapshot's number is its detector's own: ``archive`` and ``snapshot`` together name it. A null archive is that of a file
   written before version 4.
4. Times are seconds since the epoch (UTC) as doubles, exactly as the detector had them; the folder's day is for people and
   for reading less.
"""

from __future__ import annotations

import pyarrow as pa

SCHEMA_VERSION = 4
"""Incremented when a column is added."""

VERSION_KEY = b"stilltrue.schema_version"
TABLE_KEY = b"stilltrue.table"
REPLACES_KEY = b"stilltrue.replaces"

TEXT, REAL, TRUTH, WHOLE, SMALL = pa.string(), pa.float64(), pa.bool_(), pa.int64(), pa.int32()


def listed(**fields: pa.DataType) -> pa.ListType:
    """A list of structs with these fields."""
    return pa.list_(pa.struct(list(fields.items())))


PROCESSES = listed(service=TEXT, instance=TEXT, incarnation=WHOLE)
FACTS = pa.map_(TEXT, pa.struct([("whole", WHOLE), ("real", REAL), ("text", TEXT), ("truth", TRUTH)]))
LABELS = pa.map_(TEXT, TEXT)
STATES = listed(process=TEXT, service=TEXT, activity=TEXT, facts=FACTS, labels=LABELS)
MESSAGES = listed(source=TEXT, target=TEXT, facts=FACTS, what=TEXT)
CALLER = pa.struct([("process", TEXT), ("incarnation", WHOLE)])

WAITS = pa.struct(
    [
        ("names", pa.list_(TEXT)),
        ("waiter", pa.list_(SMALL)),
        ("needs", pa.list_(SMALL)),
        ("sizes", pa.list_(SMALL)),
        ("targets", pa.list_(SMALL)),
        ("deadline", pa.list_(REAL)),
        ("since", pa.list_(REAL)),
        ("number", pa.list_(WHOLE)),
        ("uncoloured", pa.list_(TRUTH)),
        ("what", pa.list_(TEXT)),
        ("incarnation", pa.list_(WHOLE)),
    ]
)
"""One snapshot's waits as numbers over its own sorted ``names``: ready for the reduction, nothing to look up.

``sizes`` says how many of ``targets`` belong to each wait in turn. ``incarnation`` is that of the
waiter's process. A list that says nothing of any wait is null.
"""

RESOLVED = listed(
    waiter=TEXT,
    needs=SMALL,
    among=pa.list_(TEXT),
    deadline=REAL,
    since=REAL,
    number=WHOLE,
    uncoloured=TRUTH,
    what=TEXT,
)
"""One process's waits, resolved to parties by name."""

REPORTS = pa.schema(
    [
        ("snapshot", WHOLE),
        ("begun", REAL),
        ("members", SMALL),
        ("service", TEXT),
        ("process", TEXT),
        ("incarnation", WHOLE),
        ("cut_for", WHOLE),
        ("after", WHOLE),
        ("cut_at", REAL),
        ("next_number", WHOLE),
        ("activity", TEXT),
        (
            "made",
            listed(
                number=WHOLE,
                method=TEXT,
                target=TEXT,
                servers=pa.map_(TEXT, WHOLE),
                strangers=TRUTH,
                party=TEXT,
                since=REAL,
                deadline=REAL,
                sent=WHOLE,
                received=WHOLE,
                facts=FACTS,
                doubtful=TRUTH,
                copies_max=SMALL,
                hedged=TRUTH,
            ),
        ),
        (
            "served",
            listed(
                party=TEXT,
                method=TEXT,
                caller=CALLER,
                number=WHOLE,
                serving=TRUTH,
                pool=TEXT,
                since=REAL,
                deadline=REAL,
                sent=WHOLE,
                received=WHOLE,
                taken=TRUTH,
                interruptible=TRUTH,
                hung_up=TRUTH,
            ),
        ),
        (
            "seen",
            listed(
                caller=CALLER,
                highest=WHOLE,
                forgotten=WHOLE,
                answered=listed(number=WHOLE, sent=WHOLE, received=WHOLE, facts=FACTS, taken=TRUTH),
                plain=pa.list_(WHOLE),
            ),
        ),
        ("pools", listed(name=TEXT, size=SMALL, queued=SMALL)),
        (
            "waits",
            listed(
                waiter=TEXT,
                number=WHOLE,
                among=listed(party=TEXT, call=WHOLE, resource=TEXT, served=TEXT),
                needs=SMALL,
                deadline=REAL,
                since=REAL,
                uncoloured=TRUTH,
                what=TEXT,
            ),
        ),
        ("holds", listed(party=TEXT, resource=TEXT, capacity=SMALL)),
        ("facts", FACTS),
        ("labels", LABELS),
        ("lost", WHOLE),
        ("resolved", RESOLVED),
        ("before", RESOLVED),
        ("in_transit", MESSAGES),
        ("archive", TEXT),
    ]
)
"""A row per snapshot and process: its local state.

``resolved``: its waits as the assembler resolved them to parties; ``before``: null, but in older files those of the snapshot
before (the verification round has taken their place). ``in_transit``: the messages in transit that this process sent.
"""

MEMBERSHIP = pa.list_(pa.struct([("about", TEXT), ("predicate", TEXT), ("text", TEXT), ("decisive", pa.list_(TEXT))]))
SNAPSHOTS = pa.schema(
    [
        ("snapshot", WHOLE),
        ("scope", TEXT),
        ("begun", REAL),
        ("ended", REAL),
        ("begun_by", TEXT),
        ("outcome", TEXT),
        ("members", SMALL),
        ("missing", PROCESSES),
        ("orphans", pa.list_(TEXT)),
        ("processes", STATES),
        ("in_transit", MESSAGES),
        ("waits", WAITS),
        ("previous", WAITS),
        ("archive", TEXT),
        ("forgetful", pa.list_(TEXT)),
        ("doubts", pa.list_(TEXT)),
        ("membership", MEMBERSHIP),
    ]
)
"""A row per finished snapshot: all that a predicate is asked about.

``previous``: null, but in older files the waits of the snapshot before (the verification round has taken their place).
"""

VERDICTS = pa.schema(
    [
        ("snapshot", WHOLE),
        ("scope", TEXT),
        ("begun", REAL),
        ("ended", REAL),
        ("members", SMALL),
        ("predicate", TEXT),
        ("holds", TEXT),
        ("remainder", pa.list_(TEXT)),
        ("core", pa.list_(TEXT)),
        ("behind", pa.list_(TEXT)),
        ("witness_kind", TEXT),
        ("witness_parties", pa.list_(TEXT)),
        ("witness_text", TEXT),
        ("missing", pa.list_(TEXT)),
        ("decisive", pa.list_(TEXT)),
        ("until", REAL),
        ("explanation", pa.list_(TEXT)),
        ("victims", pa.list_(TEXT)),
        ("archive", TEXT),
        ("revision", SMALL),
    ]
)
"""A row per snapshot, scope and predicate; of several revisions the highest counts."""

INCIDENTS = pa.schema(
    [
        ("snapshot", WHOLE),
        ("begun", REAL),
        ("id", TEXT),
        ("predicate", TEXT),
        ("scope", TEXT),
        ("core", pa.list_(TEXT)),
        ("behind", pa.list_(TEXT)),
        ("opened", REAL),
        ("seen", REAL),
        ("closed", REAL),
        ("formed", REAL),
        ("first_snapshot", WHOLE),
        ("last_snapshot", WHOLE),
        ("text", TEXT),
        ("waits", pa.list_(TEXT)),
        ("ending", TEXT),
        ("archive", TEXT),
    ]
)
"""A row per incident and change of it; ``snapshot`` and ``begun`` are its row's. The newest row counts."""

TABLES = {"reports": REPORTS, "snapshots": SNAPSHOTS, "verdicts": VERDICTS, "incidents": INCIDENTS}


def stamped(table: str) -> pa.Schema:
    """The columns of ``table`` with the footer's metadata."""
    return TABLES[table].with_metadata({TABLE_KEY: table.encode(), VERSION_KEY: str(SCHEMA_VERSION).encode()})


def conformed(data: pa.Table, schema: pa.Schema) -> pa.Table:
    """``data`` of this version or an older one, with exactly the columns of ``schema``: what is not there is null."""
    there = set(data.schema.names)
    columns = [
        _cast(data.column(field.name), field.type) if field.name in there else pa.nulls(data.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _cast(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == wanted else column.cast(wanted)
