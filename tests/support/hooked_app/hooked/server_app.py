"""A server that records the model after each round, and whose grid a test can hold."""

import json
from collections.abc import Iterable
from functools import partial
from unittest import mock

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.run import Run

from coterie.transports.flower import Confinement, PrivateStrategy, carrier, link
from coterie.transports.flower.exchange import Exchange

from . import places

app = ServerApp()


class HookedGrid(Grid):
    """Flower's grid, with places before and after requests are sent."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def set_run(self, run: Run) -> None:
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        return self._grid.run

    def create_message(self, *args: object, **kwargs: object) -> Message:
        return self._grid.create_message(*args, **kwargs)  # type: ignore[arg-type]

    def get_node_ids(self) -> Iterable[int]:
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        listed = list(messages)
        step = places.step_of(listed[0].content)
        places.reach("server", step, "before")
        pushed = list(self._grid.push_messages(listed))
        places.reach("server", step, "after")
        return pushed

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self._grid.send_and_receive(messages, timeout=timeout)


def switch_retries_off() -> None:
    """Let every error of the SuperLink end the run, and send every request once."""
    mock.patch.object(link, "is_temporary", return_value=False).start()
    mock.patch.object(carrier, "Exchange", partial(Exchange, tries=1)).start()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    if not config["retries"]:
        switch_retries_off()
    nodes = int(config["nodes"])
    strategy = PrivateStrategy(
        FedAvg(fraction_evaluate=0.0, min_available_nodes=nodes, min_train_nodes=nodes),
        privacy=int(config["privacy"]),
        deadline=float(config["deadline"]),
        protocol=str(config["protocol"]),
        colluders=0,
        most_examples=1,
        varying=["rounds", "nodes", "deadline", "protocol"],
        confined=Confinement() if config["confined"] else None,
    )

    def note(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        played = strategy.grid.results if strategy.grid else []
        result = played[-1] if played else None
        value = float(arrays["w"].numpy()[0])
        line = {
            "round": server_round,
            "value": value,
            "outcome": str(result.outcome) if result else "",
            "clients": sorted(result.revealed) if result and result.value else [],
            "seconds": {str(step): seconds for step, seconds in strategy.grid.traffic[-1].seconds.items()}
            if strategy.grid and played
            else {},
        }
        with (places.folder() / "rounds").open("a") as file:
            file.write(json.dumps(line) + "\n")
        places.reach("server", "round", str(server_round))
        return MetricRecord({"value": value})

    strategy.start(
        grid=HookedGrid(grid),
        initial_arrays=ArrayRecord({"w": Array(np.zeros(5, dtype=np.float32))}),
        num_rounds=int(config["rounds"]),
        timeout=float(config["deadline"]),
        evaluate_fn=note,
    )
