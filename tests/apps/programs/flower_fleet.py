"""Flower 1.21 as a fleet that goes on for ever: ``server ADDRESS``, or ``client ADDRESS OWN``. Prints a line for each fit."""

import sys
import time
import warnings

warnings.simplefilter("ignore")

import flwr
import numpy

FIT_SECONDS = 0.05


class Client(flwr.client.NumPyClient):
    """Moves each parameter half the way to its own value."""

    def __init__(self, own):
        self.own = own
        self.fits = 0

    def get_parameters(self, config):
        return [numpy.zeros(3)]

    def fit(self, parameters, config):
        time.sleep(FIT_SECONDS)
        self.fits += 1
        print(self.fits, flush=True)
        return [(parameters[0] + self.own) / 2], 10, {}

    def evaluate(self, parameters, config):
        return float(abs(parameters[0] - self.own).sum()), 10, {}


def main():
    role, address, *own = sys.argv[1:]
    if role == "client":
        flwr.client.start_client(server_address=address, client=Client(float(own[0])).to_client())
        return
    strategy = flwr.server.strategy.FedAvg(min_fit_clients=2, min_evaluate_clients=2, min_available_clients=2)
    print("begins", flush=True)
    flwr.server.start_server(server_address=address, config=flwr.server.ServerConfig(num_rounds=10**6), strategy=strategy)


if __name__ == "__main__":
    main()
