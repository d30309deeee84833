"""Flower without its processes: a grid that passes serialised messages directly to a client app."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from coterie.deployment import first_use
from coterie.deployment.engine import AppReply
from coterie.transports.flower.mod import PrivateMod
from coterie.transports.flower.records import configuration_of, model_of

Answer = Callable[[Message], Message]
Deliver = Callable[[Message, Answer], Message | None]
"""Delivers a message: it may be lost (None), changed, repeated or answered with an error."""

TRUTH = np.array([0.5, -0.25, 0.125], dtype=np.float32)


def straight(message: Message, answer: Callable[[Message], Message]) -> Message | None:
    return answer(message)


def serialised(message: Message) -> Message:
    """Return a message after it was serialised and read again."""
    sent = message_to_proto(message).SerializeToString()
    arrived = message_from_proto(ProtoMessage.FromString(sent))
    arrived.metadata.__dict__["_message_id"] = message.metadata.message_id
    return arrived


@dataclass
class FakeNode:
    """A node with its own configuration; as in Flower, nothing stays in memory between two messages."""

    app: ClientApp
    node_config: dict[str, str | int | float | bool]
    run_config: dict[str, str | int | float | bool] = field(default_factory=dict)

    def answer(self, message: Message) -> Message:
        context = Context(
            run_id=message.metadata.run_id,
            node_id=message.metadata.dst_node_id,
            node_config=dict(self.node_config),
            state=RecordDict(),
            run_config=dict(self.run_config),
        )
        try:
            return serialised(self.app(serialised(message), context))
        except Exception as error:
            return Message(Error(2, repr(error)), reply_to=message)


class FakeGrid(Grid):
    """A grid of such nodes."""

    def __init__(self, nodes: Mapping[int, FakeNode], deliver: Deliver = straight, run_id: int = 7) -> None:
        self.nodes = dict(nodes)
        self.deliver = deliver
        self.sent: list[Message] = []
        self.replies: dict[str, Message] = {}
        self._count = count(1)
        self._run = Run.create_empty(run_id)
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run_id, 1, 1

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=node) for node in self.nodes]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for message in messages:
            if message.metadata.dst_node_id not in self.nodes:
                names.append("")
                continue
            name = f"message-{next(self._count)}"
            message.metadata.__dict__["_message_id"] = name
            names.append(name)
            self._carry(message)
        return names

    def _carry(self, message: Message) -> None:
        self.sent.append(message)
        node = self.nodes[message.metadata.dst_node_id]
        if (reply := self.deliver(message, node.answer)) is not None:
            self.replies[message.metadata.message_id] = reply

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(name) for name in message_ids if name in self.replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(list(self.push_messages(messages)))


def make_app(mods: list[PrivateMod] | None = None) -> ClientApp:
    """Return an app whose clients add a constant of their own to the model."""
    app = ClientApp(mods=list(mods or []))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        place = int(context.node_config["partition-id"])
        arrays = {
            name: Array(np.asarray(array.numpy() + np.asarray(0.01 * (place + 1), dtype=array.numpy().dtype)))
            for name, array in message.content.array_records["arrays"].items()
        }
        metrics = MetricRecord({"num-examples": 10 * (place + 1), "train_loss": 0.5 + place})
        return Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        place = int(context.node_config["partition-id"])
        metrics = MetricRecord({"num-examples": 5, "accuracy": place / 10})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def make_grid(app: ClientApp, size: int, deliver: Deliver = straight, config: dict[str, Any] | None = None) -> FakeGrid:
    nodes = {
        100 + number: FakeNode(app, {"partition-id": number, "num-partitions": size, **(config or {})})
        for number in range(size)
    }
    return FakeGrid(nodes, deliver)


def reply_of(records: RecordDict) -> AppReply:
    """Return what an app replied, as Coterie reads it."""
    metrics = next(iter(records.metric_records.values()))
    return AppReply(model_of(records) if records.array_records else {}, metrics)


def configured(run_config: Mapping[str, object], received: RecordDict, varying: tuple[str, ...]) -> bytes:
    """Return what a node stores of the configuration of a task."""
    return first_use.encode_configuration(configuration_of(run_config, received, varying))


@pytest.fixture(autouse=True)
def identity() -> None:
    """Make the identity without which there are no messages, before any grid of the test."""
    FakeGrid({})


def initial_arrays() -> ArrayRecord:
    return ArrayRecord({"w": Array(TRUTH.copy()), "b": Array(np.ones(()))})
