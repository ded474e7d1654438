"""Flower 1.21: a server and two clients, three rounds of federated averaging over gRPC. Prints the model of each round."""

import socket
import subprocess
import sys
import time
import warnings

warnings.simplefilter("ignore")

import flwr
import numpy
from watched import wait_until_seen


class Client(flwr.client.NumPyClient):
    """Moves each parameter half the way to its own value."""

    def __init__(self, own):
        self.own = own

    def get_parameters(self, config):
        return [numpy.zeros(3)]

    def fit(self, parameters, config):
        return [(parameters[0] + self.own) / 2], 10, {}

    def evaluate(self, parameters, config):
        return float(abs(parameters[0] - self.own).sum()), 10, {}


def serve(address):
    strategy = flwr.server.strategy.FedAvg(min_fit_clients=2, min_evaluate_clients=2, min_available_clients=2)
    history = flwr.server.start_server(server_address=address, config=flwr.server.ServerConfig(num_rounds=3), strategy=strategy)
    print("RESULT losses", history.losses_distributed)
    wait_until_seen()


def main():
    if len(sys.argv) == 3:
        serve(sys.argv[2])
        return
    if len(sys.argv) == 4:
        flwr.client.start_client(server_address=sys.argv[2], client=Client(float(sys.argv[3])).to_client())
        wait_until_seen()
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    quiet = {"stderr": subprocess.DEVNULL}
    server = subprocess.Popen([sys.executable, __file__, "--server", address], **quiet)
    wait_for(address)
    clients = [subprocess.Popen([sys.executable, __file__, "--client", address, own], **quiet) for own in ("1", "3")]
    print("RESULT exits", server.wait(120), [client.wait(60) for client in clients])


def wait_for(address):
    host, _, port = address.partition(":")
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(address)


if __name__ == "__main__":
    main()
