"""Large models: the memory that a node needs beside them, and apps that send only adapters."""

import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from tests.support.flower import FakeGrid, FakeNode
from tests.support.flower_strategies import QUIET, sums_of
from tests.support.large_model import DirectNode

from coterie.deployment.recipe import RosterRecipe
from coterie.transports.flower import PrivateStrategy, private_mod

PROJECT = Path(__file__).parents[4]
LAYERS, LAYER = 10, 300_000
LARGE = 50_000_000
MODEL_BYTES = 4 * LAYERS * LAYER
MOST_MODELS = 3.0
"""The memory that a node may need beside the received model and the app's reply, as a multiple of the model."""


def test_a_node_needs_at_most_three_times_the_model_beside_it() -> None:
    app, peaks = ClientApp(mods=[private_mod]), list[float]()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        tracemalloc.reset_peak()  # from here on; the reply is the received model, which is in memory already
        metrics = MetricRecord({"num-examples": 3})
        reply = RecordDict({"arrays": message.content.array_records["arrays"], "metrics": metrics})
        return Message(reply, reply_to=message)

    def measured(message: Message, answer: Callable[[Message], Message]) -> Message:
        if "arrays" not in message.content:
            return answer(message)
        tracemalloc.start()
        try:
            return answer(message)
        finally:
            peaks.append(tracemalloc.get_traced_memory()[1] / MODEL_BYTES)
            tracemalloc.stop()

    grid = FakeGrid({100 + number: DirectNode(app, {"partition-id": number}) for number in range(2)}, measured)
    arrays = ArrayRecord({f"layer-{at}": Array(np.zeros(LAYER, np.float32)) for at in range(LAYERS)})
    kept = PrivateStrategy(FedAvg(**QUIET), deadline=60)
    kept.start(grid, arrays, 1, timeout=60)
    assert sums_of(kept) == [2]
    assert len(peaks) == 2
    assert 1 < max(peaks) <= MOST_MODELS


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the peak of a process is measured on Linux only"
)
@pytest.mark.parametrize("sizes", [[LARGE], [LARGE // 10] * 10], ids=["one array", "ten arrays"])
def test_a_model_of_fifty_million_parameters_takes_three_times_its_size_at_most(
    tmp_path: Path, sizes: list[int]
) -> None:
    """The memory of the whole process, with SQLite, and the bits that a roster of up to 128 nodes needs by default."""
    bits = RosterRecipe().quantizer(128).ring.bits
    precision = next(one for one in range(24, 54) if RosterRecipe(precision=one).quantizer(2).ring.bits == bits)
    command = [sys.executable, "-m", "tests.support.large_model", str(precision), *map(str, sizes)]
    environment = {**os.environ, "COTERIE_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    played = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=1800, check=False
    )
    assert played.returncode == 0, played.stderr
    peaks = json.loads(played.stdout.splitlines()[-1])
    print([f"{peak / 1e6:.0f} MB" for peak in peaks])
    assert len(peaks) == 2
    assert 1 < max(peaks) / (4 * LARGE) <= MOST_MODELS


def test_an_app_may_send_only_adapters_and_keep_its_model() -> None:
    """As in fine-tuning with LoRA: every node has the large model, which is frozen, and no message contains it."""
    rng = np.random.default_rng(0)
    frozen, target = rng.normal(size=(64, 64)), rng.normal(size=(64, 4)) @ rng.normal(size=(4, 64)) * 0.02
    app, sent = ClientApp(mods=[private_mod]), list[int]()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        adapters = {name: array.numpy() for name, array in message.content.array_records["arrays"].items()}
        wanted = frozen + target + 0.001 * int(context.node_config["partition-id"])
        down, up = adapters["block.down"], adapters["block.up"]
        for _ in range(5):
            error = frozen + down @ up - wanted
            down, up = down - 0.05 * error @ up.T, up - 0.05 * down.T @ error
        arrays = ArrayRecord({"block.down": Array(down), "block.up": Array(up)})
        return Message(RecordDict({"arrays": arrays, "m": MetricRecord({"num-examples": 10})}), reply_to=message)

    def listen(message: Message, answer: Callable[[Message], Message]) -> Message:
        reply = answer(message)
        for records in (message.content, reply.content):
            sent.extend(len(array.data) for record in records.array_records.values() for array in record.values())
        return reply

    adapters = {"block.down": rng.normal(size=(64, 4)) * 0.1, "block.up": np.zeros((4, 64))}
    grid = FakeGrid({100 + number: FakeNode(app, {"partition-id": number}) for number in range(4)}, listen)
    arrays = ArrayRecord({name: Array(array) for name, array in adapters.items()})
    result = PrivateStrategy(FedAvg(**QUIET), most_examples=10).start(grid, arrays, 20)
    found = {name: array.numpy() for name, array in result.arrays.items()}
    before, after = (np.linalg.norm(one["block.down"] @ one["block.up"] - target) for one in (adapters, found))
    assert after < before / 2
    assert max(sent) < frozen.nbytes / 2
