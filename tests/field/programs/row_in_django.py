"""A service calls another inside ``atomic()``, and the other wants the row: only Django's thread-local has the connection."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import django
import grpc
import psycopg
from django.conf import settings
from django.db import connection, models, transaction
from field_program import FAR_SECONDS, MODE, POSTGRES, PROCESS, begin, join, publish, published, ready, service, stay

known = psycopg.conninfo.conninfo_to_dict(POSTGRES)
database = {"NAME": known["dbname"], "HOST": known["host"], "PORT": known.get("port", ""), "USER": known["user"]}
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **database}})
django.setup()


class Stock(models.Model):
    """An item in stock."""

    item = models.IntegerField(primary_key=True)
    count = models.IntegerField()

    class Meta:
        """Its table."""

        app_label = "shop"


def probe() -> None:
    """The probe of this run's database, as an operator starts it."""
    ready()
    os.execv(
        sys.executable, [sys.executable, "-m", "detector", "probe", "postgres", POSTGRES, "--instance", service("postgres")]
    )


def take() -> None:
    item = Stock.objects.select_for_update().get(pk=1)  # core: stock
    item.count -= 1
    item.save()


def stock() -> None:
    join("stock")
    with connection.schema_editor() as editor:
        editor.create_model(Stock)
    Stock.objects.create(item=1, count=100)

    def reserve(request: bytes, context: grpc.ServicerContext) -> bytes:
        with transaction.atomic():
            publish("asked", "")
            take()
        return b""

    server = grpc.server(ThreadPoolExecutor(4))
    handlers = {"Reserve": grpc.unary_unary_rpc_method_handler(reserve)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Stock", handlers),))
    publish("stock", str(server.add_insecure_port("127.0.0.1:0")))
    server.start()
    stay()


def orders() -> None:
    join("orders")
    reserve = grpc.insecure_channel(f"127.0.0.1:{published('stock')}").unary_unary("/Stock/Reserve")

    def roll_back_later(shared: Any) -> None:
        threading.Event().wait(FAR_SECONDS)
        shared.rollback()

    def place() -> None:
        with transaction.atomic():
            take()
            if MODE == "other_thread":
                connection.inc_thread_sharing()
                begin(roll_back_later, transaction.get_connection())
            reserve(b"", timeout=FAR_SECONDS if MODE == "deadline" else None)  # core: orders

    begin(place)
    published("asked")
    stay()


{"probe": probe, "stock": stock, "orders": orders}[PROCESS]()
