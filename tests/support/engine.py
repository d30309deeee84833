"""An engine in one process, without a framework: only what a carrier has to provide."""

import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np

from coterie.cohorts.ledger import Ledger
from coterie.deployment.aggregator import Aggregator
from coterie.deployment.engine import (
    HELLO,
    STEP,
    AppReply,
    Arrays,
    Assignment,
    Delivery,
    Hello,
    NodeRequest,
    Task,
    Trip,
    TripReply,
)
from coterie.deployment.enrolment import Enrolment
from coterie.deployment.node import run_config_digest
from coterie.deployment.reception import Reception
from coterie.deployment.settings import PrivateSettings

App = Callable[[int, Arrays], AppReply]
"""Trains on the node of this number."""
RUN = 3
RUN_CONFIG = run_config_digest({})


class DirectRequest(NodeRequest):
    """A request that is passed on unchanged."""

    def __init__(self, trip: Trip, node: int, app: App) -> None:
        self._payload, self._app, self._node = trip.payloads[node], app, node
        self._model: Arrays = dict(trip.records) if isinstance(trip.records, Mapping) else {}
        self.task = Task(RUN, trip.function, trip.group)
        self.created_at, self.ttl = time.time(), trip.seconds
        self.run_config = RUN_CONFIG
        self.rosters, self.vouchers = trip.rosters.get(node, ()), trip.vouchers

    def identifier(self) -> bytes:
        return hashlib.sha256(self._payload).digest()

    def payload(self) -> bytes:
        return self._payload

    def content(self) -> bytes:
        return name_of(self._model)

    def arrays(self) -> Arrays:
        return self._model

    def configuration(self, varying: Collection[str]) -> Iterator[tuple[str, bytes]]:
        yield from ((name, repr(array.shape).encode()) for name, array in self._model.items())

    def run_app(self, model: Arrays | None = None) -> AppReply:
        return self._app(self._node, self._model if model is None else model)


class DirectDelivery(Delivery[TripReply]):
    """A trip that is passed to a node unchanged."""

    def __init__(self, trip: Trip, node: int, app: App) -> None:
        self._trip, self._node, self._app = trip, node, app
        self.function = trip.function

    def kind(self) -> str | None:
        return HELLO if self._trip.hello else STEP

    def about(self) -> str:
        return self._trip.about

    def hello(self) -> Hello:
        trip, shown = self._trip, self._trip.rosters.get(self._node, ())
        return Hello(RUN, self._node, RUN_CONFIG, trip.prekeys, trip.renew, shown, trip.vouchers)

    def request(self) -> NodeRequest:
        return DirectRequest(self._trip, self._node, self._app)

    def pass_on(self) -> TripReply:
        return TripReply(self._node, b"the app's own reply")

    def reply(self, payload: bytes) -> TripReply:
        return TripReply(self._node, payload)

    def refuse(self, word: str) -> TripReply:
        return TripReply(self._node, reason=self._trip.asked.refusal(word))


class DirectCarrier:
    """Calls the nodes one after the other; those in ``away`` do not answer."""

    run = RUN

    def __init__(self, nodes: int, app: App) -> None:
        self._nodes, self._app = range(nodes), app
        self.away: set[int] = set()

    def connected(self) -> Collection[int]:
        return set(self._nodes)

    def authentication_keys(self) -> Mapping[int, bytes]:
        return {}

    def send(self, trip: Trip) -> Iterator[TripReply]:
        for node in trip.payloads:
            if node in self.away and not trip.hello:
                yield TripReply(node, reason="went away")
                continue
            yield Reception().receive({"partition-id": node}, DirectDelivery(trip, node, self._app))


def name_of(arrays: Arrays) -> bytes:
    return hashlib.sha256(msgspec.msgpack.encode([(name, array.tolist()) for name, array in arrays.items()])).digest()


def assignment(model: Arrays) -> Assignment:
    return Assignment("train", name_of(model), model, records=model)


def moving(node: int, model: Arrays) -> AppReply:
    """Move a model by a tenth of the node's number, with as many examples as that number plus one."""
    moved = {name: np.asarray(array + 0.1 * node) for name, array in model.items()}
    return AppReply(moved, {"num-examples": node + 1})


def aggregator(carrier: DirectCarrier, folder: Path, ledger: Ledger, settings: PrivateSettings) -> Aggregator:
    return Aggregator(carrier, Enrolment(carrier, folder, settings), ledger, settings, "Coterie comes first")
