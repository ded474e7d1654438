"""The schemas of the archive's four tables, and their version; docs/archive.md explains the columns.

Rules:

1. Columns are only ever added, with null for "not known then"; types and meanings never change. So old files stay readable.
2. Each file's footer names the table and the schema version.
3. Each detector numbers its own snapshots: ``archive`` and ``snapshot`` together identify one. ``archive`` is null in files
   written before version 4.
4. Times are seconds since the epoch (UTC) as doubles, exactly as the detector had them. The day in a folder's name serves
   people, and lets readers skip files.
"""

from __future__ import annotations

import pyarrow as pa

SCHEMA_VERSION = 4
"""Incremented when a column is added."""

VERSION_KEY = b"stilltrue.schema_version"
TABLE_KEY = b"stilltrue.table"
REPLACES_KEY = b"stilltrue.replaces"

STRING, FLOAT64, BOOL, INT64, INT32 = pa.string(), pa.float64(), pa.bool_(), pa.int64(), pa.int32()


def listed(**fields: pa.DataType) -> pa.ListType:
    """Return the type of a list of structs with these fields."""
    return pa.list_(pa.struct(list(fields.items())))


PROCESSES = listed(service=STRING, instance=STRING, incarnation=INT64)
FACTS = pa.map_(STRING, pa.struct([("whole", INT64), ("real", FLOAT64), ("text", STRING), ("truth", BOOL)]))
LABELS = pa.map_(STRING, STRING)
STATES = listed(process=STRING, service=STRING, activity=STRING, facts=FACTS, labels=LABELS)
MESSAGES = listed(source=STRING, target=STRING, facts=FACTS, what=STRING)
CALLER = pa.struct([("process", STRING), ("incarnation", INT64)])

WAITS = pa.struct(
    [
        ("names", pa.list_(STRING)),
        ("waiter", pa.list_(INT32)),
        ("needs", pa.list_(INT32)),
        ("sizes", pa.list_(INT32)),
        ("targets", pa.list_(INT32)),
        ("deadline", pa.list_(FLOAT64)),
        ("since", pa.list_(FLOAT64)),
        ("number", pa.list_(INT64)),
        ("uncoloured", pa.list_(BOOL)),
        ("what", pa.list_(STRING)),
        ("incarnation", pa.list_(INT64)),
    ]
)
"""One snapshot's waits as numbers over its own sorted ``names``, ready for the reduction.

``sizes`` has each wait's number of ``targets``, and ``incarnation`` that of the waiter's process. A list without any value is
null.
"""

RESOLVED = listed(
    waiter=STRING,
    needs=INT32,
    among=pa.list_(STRING),
    deadline=FLOAT64,
    since=FLOAT64,
    number=INT64,
    uncoloured=BOOL,
    what=STRING,
)
"""One process's waits, resolved to the names of parties."""

REPORTS = pa.schema(
    [
        ("snapshot", INT64),
        ("begun", FLOAT64),
        ("members", INT32),
        ("service", STRING),
        ("process", STRING),
        ("incarnation", INT64),
        ("cut_for", INT64),
        ("after", INT64),
        ("cut_at", FLOAT64),
        ("next_number", INT64),
        ("activity", STRING),
        (
            "made",
            listed(
                number=INT64,
                method=STRING,
                target=STRING,
                servers=pa.map_(STRING, INT64),
                strangers=BOOL,
                party=STRING,
                since=FLOAT64,
                deadline=FLOAT64,
                sent=INT64,
                received=INT64,
                facts=FACTS,
                doubtful=BOOL,
                copies_max=INT32,
                hedged=BOOL,
            ),
        ),
        (
            "served",
            listed(
                party=STRING,
                method=STRING,
                caller=CALLER,
                number=INT64,
                serving=BOOL,
                pool=STRING,
                since=FLOAT64,
                deadline=FLOAT64,
                sent=INT64,
                received=INT64,
                taken=BOOL,
                interruptible=BOOL,
                hung_up=BOOL,
            ),
        ),
        (
            "seen",
            listed(
                caller=CALLER,
                highest=INT64,
                forgotten=INT64,
                answered=listed(number=INT64, sent=INT64, received=INT64, facts=FACTS, taken=BOOL),
                plain=pa.list_(INT64),
            ),
        ),
        ("pools", listed(name=STRING, size=INT32, queued=INT32)),
        (
            "waits",
            listed(
                waiter=STRING,
                number=INT64,
                among=listed(party=STRING, call=INT64, resource=STRING, served=STRING),
                needs=INT32,
                deadline=FLOAT64,
                since=FLOAT64,
                uncoloured=BOOL,
                what=STRING,
            ),
        ),
        ("holds", listed(party=STRING, resource=STRING, capacity=INT32)),
        ("facts", FACTS),
        ("labels", LABELS),
        ("lost", INT64),
        ("resolved", RESOLVED),
        ("before", RESOLVED),
        ("in_transit", MESSAGES),
        ("archive", STRING),
    ]
)
"""A row per snapshot and process: its local state.

``resolved``: its waits as the assembler resolved them to parties. ``before``: null; in older files, the waits of the previous
snapshot (replaced by the verification round). ``in_transit``: the messages in transit that this process sent.
"""

MEMBERSHIP = pa.list_(pa.struct([("about", STRING), ("predicate", STRING), ("text", STRING), ("decisive", pa.list_(STRING))]))
SNAPSHOTS = pa.schema(
    [
        ("snapshot", INT64),
        ("scope", STRING),
        ("begun", FLOAT64),
        ("ended", FLOAT64),
        ("begun_by", STRING),
        ("outcome", STRING),
        ("members", INT32),
        ("missing", PROCESSES),
        ("orphans", pa.list_(STRING)),
        ("processes", STATES),
        ("in_transit", MESSAGES),
        ("waits", WAITS),
        ("previous", WAITS),
        ("archive", STRING),
        ("forgetful", pa.list_(STRING)),
        ("doubts", pa.list_(STRING)),
        ("membership", MEMBERSHIP),
    ]
)
"""A row per finished snapshot: everything that predicates are evaluated on.

``previous``: null; in older files, the waits of the previous snapshot (replaced by the verification round).
"""

VERDICTS = pa.schema(
    [
        ("snapshot", INT64),
        ("scope", STRING),
        ("begun", FLOAT64),
        ("ended", FLOAT64),
        ("members", INT32),
        ("predicate", STRING),
        ("holds", STRING),
        ("remainder", pa.list_(STRING)),
        ("core", pa.list_(STRING)),
        ("behind", pa.list_(STRING)),
        ("witness_kind", STRING),
        ("witness_parties", pa.list_(STRING)),
        ("witness_text", STRING),
        ("missing", pa.list_(STRING)),
        ("decisive", pa.list_(STRING)),
        ("until", FLOAT64),
        ("explanation", pa.list_(STRING)),
        ("victims", pa.list_(STRING)),
        ("archive", STRING),
        ("revision", INT32),
    ]
)
"""A row per snapshot, scope and predicate; the highest revision counts."""

INCIDENTS = pa.schema(
    [
        ("snapshot", INT64),
        ("begun", FLOAT64),
        ("id", STRING),
        ("predicate", STRING),
        ("scope", STRING),
        ("core", pa.list_(STRING)),
        ("behind", pa.list_(STRING)),
        ("opened", FLOAT64),
        ("seen", FLOAT64),
        ("closed", FLOAT64),
        ("formed", FLOAT64),
        ("first_snapshot", INT64),
        ("last_snapshot", INT64),
        ("text", STRING),
        ("waits", pa.list_(STRING)),
        ("ending", STRING),
        ("archive", STRING),
    ]
)
"""A row per change of an incident, with the snapshot that showed it. An incident's newest row counts."""

TABLES = {"reports": REPORTS, "snapshots": SNAPSHOTS, "verdicts": VERDICTS, "incidents": INCIDENTS}


def stamped(table: str) -> pa.Schema:
    """Return the schema of ``table`` with the footer's metadata."""
    return TABLES[table].with_metadata({TABLE_KEY: table.encode(), VERSION_KEY: str(SCHEMA_VERSION).encode()})


def conformed(data: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert ``data`` of this version or an older one to ``schema``; columns that it lacks are null."""
    present = set(data.schema.names)
    columns = [
        _cast(data.column(field.name), field.type) if field.name in present else pa.nulls(data.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _cast(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == wanted else column.cast(wanted)
