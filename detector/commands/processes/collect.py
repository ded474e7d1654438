"""``stilltrue collect``: holds agents' connections for a coordinator, and writes their reports to Kafka."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from detector.assembly.cluster import Cluster, RecordsUnavailableError, read_properties
from detector.collector.app import Collecting, CollectorRefusedError, Listening
from detector.collector.app import collect as run_collector
from detector.collector.relay import Coordinator
from detector.commands.options.shared_options import FILE, log_format_option, metrics_option
from detector.commands.shared.announcement import announce
from detector.commands.shared.connection import security_options
from detector.commands.shared.own_process import mark_as_detectors
from detector.commands.shared.run import CommandError
from detector.ops.address import Address, AddressError, parse_address
from detector.ops.logs import configure
from detector.service.grpc_api.port import AddressInUseError
from detector.service.grpc_api.roles import SecurityError
from stilltrue.runtime.membership.credentials import Security

EPILOG = """\b
Example, on one machine:
  stilltrue serve --kafka 127.0.0.1:9092 --port 7700
  stilltrue collect --coordinator 127.0.0.1:7700 --kafka 127.0.0.1:9092
  stilltrue assemble --kafka 127.0.0.1:9092 --out verdicts

Agents connect to any collector (--port); questions go to the coordinator. A collector keeps no state: start as many as the
agents need, and stop them at any time. Needs: pip install 'stilltrue-detector[kafka]'.
"""


@click.command(epilog=EPILOG)
@click.option("--coordinator", required=True, metavar="HOST:PORT[,...]", help="The coordinator: 'stilltrue serve --kafka'.")
@click.option(
    "--kafka", required=True, metavar="HOST:PORT[,...]",
    help="Kafka's address, or a URI or directory to use instead; the same as the coordinator's.",
)  # fmt: skip
@click.option("--kafka-topics", default="stilltrue", show_default=True, help="Prefix of the topic names.")
@click.option("--kafka-config", type=FILE, help="File with KEY=VALUE lines for Kafka's client.")
@click.option("--fleet", default="default", show_default=True, help="Name of the fleet; the same as the coordinator's.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on for agents.")
@click.option(
    "--port", default=7600, show_default=True, type=click.IntRange(0, 65535), help="Port for agents; 0 picks a free one."
)
@click.option("--agents-cert-file", type=FILE, help="PEM certificate chain of the port for agents; reloaded when it changes.")
@click.option("--agents-key-file", type=FILE, help="PEM private key of --agents-cert-file.")
@click.option("--agents-ca-file", type=FILE, help="PEM CA bundle to verify the agents' certificates with.")
@click.option("--allow-plaintext", is_flag=True, help="Allow --host to be a non-local address without TLS.")
@click.option(
    "--report-bytes-max", default=16 * 2**20, show_default=True, type=click.IntRange(1024, 2**30), help="Limit for one report."
)
@click.option(
    "--report-entries-max", default=50_000, show_default=True, type=click.IntRange(1, 10**7),
    help="Maximum number of waits and calls in a report.",
)  # fmt: skip
@metrics_option("STILLTRUE_COLLECT_METRICS", "streams, reports stored, refused and dropped, the connection to the coordinator")
@log_format_option
@security_options
def collect(
    coordinator: str,
    kafka: str,
    kafka_topics: str,
    kafka_config: Path | None,
    fleet: str,
    host: str,
    port: int,
    agents_cert_file: Path | None,
    agents_key_file: Path | None,
    agents_ca_file: Path | None,
    *,
    allow_plaintext: bool,
    report_bytes_max: int,
    report_entries_max: int,
    metrics: Address | None,
    log_format: str,
    security: Security,
) -> None:
    """Run a collector until SIGINT or SIGTERM.

    The --agents-* files secure its port for agents, the --tls-* files its connection to the coordinator.
    """
    configure(log_format)
    mark_as_detectors()

    def started(listening: Listening) -> None:
        line = f"collecting {listening} coordinator={coordinator}"
        announce(line, "collecting", grpc=listening.address, coordinator=coordinator, metrics=listening.metrics)

    try:
        for each in coordinator.split(","):
            parse_address(each)
        properties = read_properties(kafka_config)
        settings = Collecting(
            host=host,
            port=port,
            coordinator=Coordinator(address=coordinator, security=security),
            cluster=Cluster(kafka, topics=kafka_topics, properties=properties, record_bytes_max=report_bytes_max),
            fleet=fleet,
            report_entries_max=report_entries_max,
            certificate=agents_cert_file,
            key=agents_key_file,
            client_ca=agents_ca_file,
            allow_plaintext=allow_plaintext,
            metrics=metrics,
        )
        asyncio.run(run_collector(settings, started))
    except AddressError as error:
        raise CommandError(f"--coordinator: {error}") from None
    except (AddressInUseError, CollectorRefusedError, RecordsUnavailableError, SecurityError) as error:
        raise CommandError(str(error)) from None
