"""A client app whose nodes move the model towards a constant of their own."""

import os

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from coterie.transports.flower import private_mod

from . import places


def hook(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Stop where a test wants it, before and after Coterie; or answer with garbage."""
    who = str(context.node_config.get("coterie-name", context.node_config["partition-id"]))
    request, step = message.content, places.step_of(message.content)
    places.reach(who, step, "before")
    if context.node_config.get("garbage") == step:
        garbage = ArrayRecord({"bytes": Array(np.frombuffer(os.urandom(1000), dtype=np.uint8))})
        return Message(RecordDict({"coterie-payload": garbage}), reply_to=message)
    if context.node_config.get("nonsense") == step:
        return Message(RecordDict({"coterie-payload": MetricRecord({"bytes": 1})}), reply_to=message)
    if context.node_config.get("error") == step:
        return Message(Error(0, "no reason"), reply_to=message)
    reply = call_next(message, context)
    if reply.has_content():
        places.note_answer(who, request, reply.content)
    places.reach(who, step, "after")
    return reply


app = ClientApp(mods=[hook, private_mod])


@app.train()
def train(message: Message, context: Context) -> Message:
    place = int(context.node_config["partition-id"])
    arrays = {
        name: Array(np.asarray(array.numpy() + 2.0 ** -(place + 2)))
        for name, array in message.content.array_records["arrays"].items()
    }
    # The loss falls with every move upwards, so confined nodes take all moves.
    loss = -float(message.content.array_records["arrays"]["w"].numpy().sum())
    metrics = MetricRecord({"num-examples": 1, "train_loss": loss})
    return Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=message)
