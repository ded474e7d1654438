"""Two services update the same rows of two databases in two orders: in each database one transaction waits, for no cycle."""

import os
import sys

import psycopg
from field_program import MODE, POSTGRES, PROCESS, begin, join, meet, publish, published, ready, service, stay

OTHER = f"{POSTGRES}_other"
UPDATE = "UPDATE stock SET count = count - 1 WHERE item = 1"
DATABASES = {"first": POSTGRES, "second": OTHER}


def probe(name: str) -> None:
    """One of the probes, as an operator starts them."""
    published("set-up")
    ready()
    instance = service(f"postgres-{name}")
    os.execv(sys.executable, [sys.executable, "-m", "detector", "probe", "postgres", DATABASES[name], "--instance", instance])


def set_up() -> None:
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{OTHER.rpartition("/")[2]}"')
    for address in DATABASES.values():
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("CREATE TABLE stock (item int PRIMARY KEY, count int)")
            connection.execute("INSERT INTO stock VALUES (1, 100)")
    publish("set-up", "")


def transfer(one: str, other: str) -> None:
    with psycopg.connect(one) as source, psycopg.connect(other) as target:
        source.execute(UPDATE)
        if MODE == "committed":
            source.commit()
        if MODE != "one_order":
            meet("orders", "stock")
        target.execute(UPDATE)  # core: orders  # core: stock


def main() -> None:
    join(PROCESS)
    if PROCESS == "orders":
        set_up()
    published("set-up")
    ways = (POSTGRES, OTHER)
    begin(transfer, *(ways if PROCESS == "orders" or MODE == "one_order" else ways[::-1]))
    stay()


if PROCESS.startswith("probe-"):
    probe(PROCESS.removeprefix("probe-"))
else:
    main()
