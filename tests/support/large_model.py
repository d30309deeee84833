"""A round with a large model in a process of its own: a node's memory beside the model and the app's reply.

    python -m tests.support.large_model PRECISION SIZE [SIZE ...]

A size is the number of entries of one array. The program prints, for each node, the peak of the process's memory while
the node makes its contribution, minus the memory when the app returned, in bytes. It works only on Linux.
"""

import ctypes
import gc
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from tests.support.flower import FakeGrid, FakeNode
from tests.support.flower_strategies import QUIET

from coterie.transports.flower import PrivateStrategy, private_mod


class DirectNode(FakeNode):
    """A node whose messages are not serialised, so that memory has only the model and what Coterie needs."""

    def answer(self, message: Message) -> Message:
        about = message.metadata
        context = Context(about.run_id, about.dst_node_id, dict(self.node_config), RecordDict(), {})
        return self.app(message, context)


def resident(what: str) -> int:
    """Return the process's memory now (``VmRSS``) or at its peak (``VmHWM``)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:"))


def begin() -> int:
    """Reset the peak, and return the memory now."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


def measure(precision: int, sizes: list[int]) -> list[int]:
    app, peaks, began = ClientApp(mods=[private_mod]), list[int](), list[int]()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": 3})
        reply = RecordDict({"arrays": message.content.array_records["arrays"], "metrics": metrics})
        began.append(begin())
        return Message(reply, reply_to=message)

    def measured(message: Message, answer: Callable[[Message], Message]) -> Message:
        reply = answer(message)
        if "arrays" in message.content:
            peaks.append(resident("VmHWM") - began[-1])
        return reply

    grid = FakeGrid({100 + number: DirectNode(app, {"partition-id": number}) for number in range(2)}, measured)
    arrays = ArrayRecord({f"layer-{at}": Array(np.zeros(size, np.float32)) for at, size in enumerate(sizes)})
    kept = PrivateStrategy(FedAvg(**QUIET), deadline=900, precision=precision)
    kept.start(grid, arrays, 1, timeout=900)
    if kept.grid is None or kept.grid.results[0].value is None:
        raise SystemExit("the round had no result")
    return peaks


if __name__ == "__main__":
    logging.getLogger("flwr").setLevel(logging.ERROR)
    print(json.dumps(measure(int(sys.argv[1]), [int(size) for size in sys.argv[2:]])))
