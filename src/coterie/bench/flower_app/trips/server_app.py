"""The server: trips that do nothing, plain rounds and private ones by both protocols, one after the other."""

import json
import os
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from coterie.deployment.aggregator import Traffic
from coterie.deployment.home import server_home
from coterie.secagg.protocols import SessionProtocol
from coterie.secagg.server import Step
from coterie.transports.flower import PrivateStrategy
from coterie.transports.flower.exchange import Exchange
from coterie.transports.flower.records import pack

app = ServerApp()
RESULTS = "trips.json"


class PlainFedAvg(FedAvg):
    """FedAvg that asks for the function without the mod."""

    def _construct_messages(self, record: RecordDict, node_ids: list[int], message_type: str) -> list[Message]:
        return list(super()._construct_messages(record, node_ids, f"{message_type}.plain"))


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Time everything, and leave the results in the server's home."""
    config = context.run_config
    nodes, rounds, patience = int(config["nodes"]), int(config["rounds"]), float(config["patience"])
    model = ArrayRecord({"model": Array(np.zeros(int(config["length"]), np.float32))})
    until = time.monotonic() + patience
    while len(list(grid.get_node_ids())) < nodes and time.monotonic() < until:
        time.sleep(0.2)
    everybody = list(grid.get_node_ids())
    nothing = {node: RecordDict() for node in everybody}
    _trip(grid, "query", nothing, patience)  # in the first, simulations start their workers
    trips = [_trip(grid, "query", nothing, patience) for _ in range(rounds)]
    plain = _time_rounds(_all(PlainFedAvg, nodes), grid, model, rounds)
    secure = {}
    for protocol in (SessionProtocol.TWO_TRIPS, SessionProtocol.PAPERS):

        def private(chosen: SessionProtocol = protocol) -> PrivateStrategy:
            return PrivateStrategy(
                _all(FedAvg, nodes),
                mode=str(config["mode"]),
                protocol=chosen,
                deadline=patience,
                most_examples=1,
                resume=False,
            )

        if protocol is SessionProtocol.TWO_TRIPS:
            # Before the first round, nodes are shown the roster and leave their prekeys.
            _time_rounds(private(), grid, model, 1)
        strategy = private()
        seconds = _time_rounds(strategy, grid, model, rounds)
        traffic = strategy.grid.traffic if strategy.grid else []
        secure[protocol] = {
            "seconds": seconds,
            "completed": sum(result.value is not None for result in strategy.grid.results) if strategy.grid else 0,
            "steps": [dict(round_.seconds) for round_ in traffic],
            "carried": [_carry(grid, everybody, round_, model, patience) for round_ in traffic],
            "messages": [round_.messages for round_ in traffic],
            "sent": [sum(round_.sent.values()) for round_ in traffic],
            "received": [sum(round_.received.values()) for round_ in traffic],
        }
    Path(server_home() / RESULTS).write_text(json.dumps({"trips": trips, "plain": plain, "secure": secure}))


def _trip(grid: Grid, kind: str, requests: dict[int, RecordDict], patience: float) -> float:
    """Return the seconds that requests and their answers take."""
    began = time.monotonic()
    answered = [reply.records is not None for reply in Exchange(grid, kind, "").ask(requests, patience)]
    if not all(answered):
        raise RuntimeError(f"only {sum(answered)} of {len(answered)} nodes answered")
    return time.monotonic() - began


def _carry(grid: Grid, nodes: list[int], traffic: Traffic, model: ArrayRecord, patience: float) -> dict[Step, float]:
    """Return the seconds of trips with as many bytes in both directions as a private round, without other work."""
    seconds = {}
    for step, sent in traffic.sent.items():
        header = {"answer": traffic.received[step] // len(nodes)}
        app = RecordDict({"arrays": model}) if step in (Step.MASK, Step.CONTRIBUTE) else None
        requests = {node: pack(os.urandom(sent // len(nodes)), header, app) for node in nodes}
        seconds[step] = _trip(grid, "query.carry", requests, patience)
    return seconds


def _all(kind: type[FedAvg], nodes: int) -> FedAvg:
    """Return a strategy that trains with all nodes."""
    return kind(fraction_evaluate=0.0, min_available_nodes=nodes, min_train_nodes=nodes)


def _time_rounds(strategy: FedAvg | PrivateStrategy, grid: Grid, model: ArrayRecord, rounds: int) -> list[float]:
    """Return the seconds of each round: what lies between two evaluations on the server."""
    times: list[float] = []
    strategy.start(grid, model, num_rounds=rounds, evaluate_fn=lambda _number, _arrays: times.append(time.monotonic()))
    return [later - earlier for earlier, later in pairwise(times)]
