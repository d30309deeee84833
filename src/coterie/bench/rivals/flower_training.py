"""Flower's simulation, as a rival: FedAvg on its Ray backend, with one actor for each core.

It runs as users of flwr 1.41.0 run it with ``run_simulation``: a ServerApp with Flower's own FedAvg, and a ClientApp. A
round is timed from choosing the clients to the new model. Evaluation is off. An actor has the priority of our own
workers, uses one thread and makes the examples once, so that no message carries any. Clients train by our own code. So
only Flower's parts differ: how work is distributed, how models are sent, and how they are averaged.
"""

import logging
import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

from coterie.bench.rivals.process import Orders, Serve
from coterie.bench.rivals.work import RivalTasks
from coterie.bench.training import Scenario
from coterie.errors import RoundAborted
from coterie.training import flatten
from coterie.training.local import one_thread

# flwr may be absent, so none of its types can be named here.
_Flwr: TypeAlias = Any


def parts(scenario: Scenario, rounds: int, workers: int) -> Sequence[Serve]:
    """Return what to run: one process, which starts the others itself."""
    return [partial(serve, scenario, rounds, workers)]


def serve(scenario: Scenario, rounds: int, workers: int, orders: Orders) -> None:
    """Run a simulation with ``workers`` actors."""
    os.environ["FLWR_TELEMETRY_ENABLED"] = os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from flwr.app import ArrayRecord
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)

    def main(grid: _Flwr, _context: _Flwr) -> None:
        while len(list(grid.get_node_ids())) < scenario.clients:
            time.sleep(0.1)
        initial = ArrayRecord(_tasks(scenario, rounds).model)
        # In the last round it waits until the connection is closed.
        _strategy(orders).start(grid, initial, num_rounds=rounds + 1)

    def train(message: _Flwr, _context: _Flwr) -> _Flwr:
        return _train(scenario, rounds, message)

    server, client = ServerApp(), ClientApp()
    server.main()(main)
    client.train()(train)
    with _temporary_folder() as scratch:
        ray: dict[str, Any] = {
            "num_cpus": max(1, workers),
            "_temp_dir": scratch,
            # Ray's default is 15, with which all other programs of the machine go first.
            "_system_config": {"worker_niceness": 0},
        }
        settings: dict[str, Any] = {"init_args": ray, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
        run_simulation(server, client, num_supernodes=scenario.clients, backend_config=settings)


def _strategy(orders: Orders) -> _Flwr:
    from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
    from flwr.serverapp.strategy import FedAvg

    class Timed(FedAvg):
        """FedAvg that waits for an order before each round; the order names the clients."""

        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: _Flwr
        ) -> Iterable[Message]:
            self.order = orders.next()
            for node, name in zip(sorted(grid.get_node_ids()), self.order.clients, strict=False):
                job = ConfigRecord({"round": self.order.number, "client": name})
                yield Message(RecordDict({"arrays": arrays, "config": job}), node, MessageType.TRAIN)

        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[_Flwr, _Flwr]:
            answers = list(replies)
            failures = [answer.error.reason for answer in answers if answer.has_error()]
            if failures or len(answers) < len(self.order.clients):
                raise RoundAborted((failures and failures[0]) or "a client did not answer")
            arrays, metrics = super().aggregate_train(server_round, answers)
            if arrays is not None:
                orders.done(arrays.to_numpy_ndarrays)
            return arrays, metrics

    return Timed(fraction_evaluate=0.0)


def _train(scenario: Scenario, rounds: int, message: _Flwr) -> _Flwr:
    """Train as a client, in one of Ray's processes."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    place, job = _tasks(scenario, rounds), message.content["config"]
    model = message.content["arrays"].to_numpy_ndarrays()
    task = place.task(int(job["round"]), str(job["client"]), model)
    with one_thread():
        result = task.work(place.problem, task, lambda: False)
    trained = ArrayRecord(flatten.moved(model, result.update))
    return Message(
        RecordDict({"arrays": trained, "metrics": MetricRecord({"num-examples": result.samples})}), reply_to=message
    )


@cache
def _tasks(scenario: Scenario, rounds: int) -> RivalTasks:
    return RivalTasks(scenario, rounds)


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a folder for Ray's files, which it would leave behind, with a name short enough for its sockets."""
    usual = Path("/tmp")  # noqa: S108  (other directories for temporary files may have long names)
    return tempfile.TemporaryDirectory(prefix="ray-", dir=usual if usual.is_dir() else None, ignore_cleanup_errors=True)
