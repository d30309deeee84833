"""The client: training that takes no time, with the mod and without, and answers that are empty or have some bytes."""

import os

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from coterie.transports.flower import private_mod
from coterie.transports.flower.records import HEADER, pack

app = ClientApp()


@app.query()
def nothing(msg: Message, context: Context) -> Message:
    """Answer at once: all of the time is Flower's."""
    return Message(RecordDict(), reply_to=msg)


@app.query("carry")
def carry(msg: Message, context: Context) -> Message:
    """Answer with as many bytes as the request asks for: all of the time is Flower's, for this many bytes."""
    wanted = msg.content.config_records[HEADER]["answer"]
    return Message(pack(os.urandom(int(str(wanted))), {}), reply_to=msg)


@app.train("plain")
def plain(msg: Message, context: Context) -> Message:
    """Send the model back."""
    return _move(msg)


@app.train(mods=[private_mod])
def train(msg: Message, context: Context) -> Message:
    """Send the model back, masked."""
    return _move(msg)


def _move(msg: Message) -> Message:
    model = msg.content.array_records["arrays"]
    arrays = ArrayRecord({name: Array(array.numpy() + np.float32(0.5)) for name, array in model.items()})
    return Message(
        RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}),
        reply_to=msg,
    )
