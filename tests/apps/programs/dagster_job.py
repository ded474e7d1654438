"""Dagster: a code server asked over gRPC, and a job run by its multiprocess executor. Prints what the job makes."""

import os
import socket
import subprocess
import sys
import tempfile
import time

import dagster
from watched import wait_until_seen


@dagster.op
def numbers():
    return [1, 2, 3]


@dagster.op
def total(found):
    return sum(found)


@dagster.job(executor_def=dagster.multiprocess_executor.configured({"max_concurrent": 2}))
def sums():
    total(numbers())


def main():
    from dagster._grpc.client import DagsterGrpcClient

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "DAGSTER_HOME": home}
        command = [sys.executable, "-m", "dagster", "api", "grpc", "-f", __file__, "--port", str(port)]
        server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        client = DagsterGrpcClient(port=port, host="127.0.0.1")
        for _ in range(300):
            try:
                print("RESULT ping", client.ping("hello")["echo"])
                break
            except dagster._core.errors.DagsterUserCodeUnreachableError:
                time.sleep(0.2)
        listed = client.list_repositories()
        print("RESULT lists", "__repository__" in str(listed), "Error" in str(listed))
        os.environ["DAGSTER_HOME"] = home
        with dagster.DagsterInstance.get() as instance:
            with dagster.execute_job(dagster.reconstructable(sums), instance=instance) as result:
                print("RESULT job", result.success, result.output_for_node("total"))
        wait_until_seen()
        client.shutdown_server()
        print("RESULT exit", server.wait(60))


if __name__ == "__main__":
    main()
