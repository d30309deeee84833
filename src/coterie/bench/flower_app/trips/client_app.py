"""The client: training that takes no time, with the mod and without, and messages that ask for nothing or for bytes."""

import os

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from coterie.transports.flower import private_mod
from coterie.transports.flower.records import HEADER, packed

app = ClientApp()


@app.query()
def nothing(msg: Message, context: Context) -> Message:
    """Answer at once: what is left is Flower's own."""
    return Message(RecordDict(), reply_to=msg)


@app.query("carry")
def carry(msg: Message, context: Context) -> Message:
    """Answer with as many bytes as it is asked for: what is left is Flower's own, with something to carry."""
    wanted = msg.content.config_records[HEADER]["answer"]
    return Message(packed(os.urandom(int(str(wanted))), {}), reply_to=msg)


@app.train("plain")
def plain(msg: Message, context: Context) -> Message:
    """Send the model back."""
    return _moved(msg)


@app.train(mods=[private_mod])
def train(msg: Message, context: Context) -> Message:
    """Send the model back, masked."""
    return _moved(msg)


def _moved(msg: Message) -> Message:
    model = msg.content.array_records["arrays"]
    arrays = ArrayRecord({name: Array(array.numpy() + np.float32(0.5)) for name, array in model.items()})
    return Message(
        RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}),
        reply_to=msg,
    )
