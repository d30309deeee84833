"""A Flower server computes single updates from one sum, at default settings: by how rounding varies, or by few values.

The server crafts the weights of one model and looks at one sum. Units that are copies of each other have the same
update, so one sum holds many samples of how it was rounded.
"""

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray
from tests.support.flower import configured, make_grid
from tests.support.flower import identity as identity
from tests.support.flower_strategies import QUIET
from tests.support.homes import home as home

from coterie.deployment.engine import AppReply, Arrays
from coterie.deployment.first_use import check_unchanged
from coterie.deployment.form import Form, Mean
from coterie.deployment.recipe import VARYING, RosterRecipe
from coterie.secagg.server import Aggregate
from coterie.transports.flower import PrivateStrategy, private_mod

SIZES = (531, 1207)
COPIES = 1 << 14
SETTINGS: dict[str, Any] = {"privacy": 2, "deadline": 1, "resume": False, "empty_rounds": 0}


def totals_of_one_session(
    monkeypatch: pytest.MonkeyPatch, updates: list[dict[str, NDArray[Any]]], sizes: tuple[int, ...]
) -> tuple[Form, NDArray[np.int64]]:
    """Play a session at default settings in which nodes follow the protocol; return what the server sees."""
    app = ClientApp(mods=[private_mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        place = int(context.node_config["partition-id"])
        model = message.content.array_records["arrays"]
        arrays = ArrayRecord(
            {name: Array(np.asarray(model[name].numpy() + moved)) for name, moved in updates[place].items()}
        )
        reply = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": sizes[place]})})
        return Message(reply, reply_to=message)

    seen: list[tuple[Form, NDArray[np.int64]]] = []
    honest = Form.decode

    def decode(form: Form, given_model: Arrays, aggregate: Aggregate) -> Mean:
        seen.append((form, form.quantizer.ring.lift(aggregate.total).astype(np.int64)))
        return honest(form, given_model, aggregate)

    monkeypatch.setattr(Form, "decode", decode)
    arrays = ArrayRecord({name: Array(np.zeros_like(moved)) for name, moved in updates[0].items()})
    PrivateStrategy(FedAvg(**QUIET), **SETTINGS).start(make_grid(app, len(sizes)), arrays, 1, timeout=1)
    return seen[0]


@pytest.mark.parametrize(("name", "unit"), [("bn.running_var", 1.0), ("w", 1e-6)])
def test_the_rounding_of_one_sum_does_not_reveal_the_updates_of_two_nodes(
    name: str, unit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update p that is below one step was rounded to 1 with probability p, and to 0 otherwise.

    Copies of an entry have the mean p + q and the variance p (1 - p) + q (1 - q), which determine p and q. Changes of
    running statistics are below one coarse step; the server makes other updates as small by the model it sends.
    It failed: both updates were found within 10 %, from one sum at the default recipe.
    """
    moved = 1.5 * unit, 0.25 * unit
    updates: list[dict[str, NDArray[Any]]] = [{name: np.full(COPIES, move)} for move in moved]
    form, total = totals_of_one_session(monkeypatch, updates, SIZES)
    sums = total[1 : 1 + COPIES].astype(float)
    mean, variance = sums.mean(), sums.var()
    apart = np.sqrt(max(0.0, 2 * (mean - variance) - mean**2))
    step = form.reach(name, "f") * form.recipe.most_weight / form.quantizer.levels
    found = np.array([mean + apart, mean - apart]) / 2 * step / SIZES
    assert not np.allclose(found, moved, rtol=0.1)


@pytest.mark.parametrize("name", ["w", "bn.running_var", "whole"])
@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.25, 0.75), (-3.5, 4.5)])
def test_sums_have_the_same_distribution_if_the_weighted_sum_is_the_same(
    name: str, shares: tuple[float, float]
) -> None:
    """Every element of the vector has the distribution that it has if one of two nodes did not move.

    It failed: the sum of 0 and 1 step is always 1, and the sum of two halves is 0, 1 or 2.
    """
    recipe, copies, weight = RosterRecipe(), 1 << 15, 100
    form, rng = Form(recipe, 2), np.random.default_rng(5)
    model = {name: np.zeros(copies, "i8" if name == "whole" else "f8")}
    # The step of an array of whole numbers is 1. The server chooses the kind of an array, whatever the app returns.
    finest = 1.0 if name == "whole" else recipe.clip * recipe.most_weight / form.quantizer.levels
    coarse = form.reach(name, "i" if name == "whole" else "f") * recipe.most_weight / form.quantizer.levels
    for step in {finest, coarse}:
        sums = []
        for split in shares, (0.0, 1.0):
            total = form.quantizer.ring.zeros(form.quantizer.length(form.layout(model)))
            for share in split:
                reply = AppReply({name: np.full(copies, share * step / weight)}, {"num-examples": weight})
                total = total + form.encode(form.scale(model, reply), weight, rng)
            form.quantizer.ring.reduce(total)
            lifted = form.quantizer.ring.lift(total).astype(np.int64)
            sums.append([lifted[1 : 1 + copies], *lifted[1 + copies + 1 :].reshape(-1, copies)])
        for one, other in zip(*sums, strict=True):
            places = np.union1d(one, other)
            gap = [np.mean(one <= place) - np.mean(other <= place) for place in places]
            assert np.abs(gap).max() < 0.02


def test_the_order_of_keys_in_a_record_is_part_of_the_configuration() -> None:
    """Flower keeps the order of keys in messages, and an app may use the first one.

    It failed: only the order of records was fixed. Keys that vary may be at any place, or be left out.
    """

    def asked(*keys: str) -> bytes:
        values = {"small": 1, "large": 64, "server-round": 3}
        return configured({}, RecordDict({"config": ConfigRecord({key: values[key] for key in keys})}), VARYING)

    assert asked("small", "large") != asked("large", "small")
    assert asked("small", "large") == asked("server-round", "small", "large") == asked("small", "large", "server-round")
    check_unchanged(asked("small", "large"), asked("small", "server-round", "large"))


@pytest.mark.parametrize("pinned", [False, True])
def test_a_coarser_type_of_the_same_model_reveals_two_updates_unless_types_are_fixed(
    pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An app that computes in the type it receives has few values in float16, and their weighted sum has one solution.

    It failed: the first use fixed that an array has floating-point numbers, and not their size.
    """
    entries, base, unit, seen = 200, 96.0, 1 / 16, list[NDArray[np.float64]]()
    optima = [np.random.default_rng(place).uniform(-0.5, 0.5, entries) + base for place in range(2)]
    app, honest = ClientApp(mods=[private_mod]), Form.decode

    @app.train()
    def train(message: Message, context: Context) -> Message:
        place = int(context.node_config["partition-id"])
        weights = message.content.array_records["arrays"]["w"].numpy()
        moved = np.asarray(optima[place], dtype=weights.dtype)
        metrics = MetricRecord({"num-examples": SIZES[place]})
        reply = RecordDict({"arrays": ArrayRecord({"w": Array(moved)}), "metrics": metrics})
        return Message(reply, reply_to=message)

    def decode(form: Form, received: Arrays, aggregate: Aggregate) -> Mean:
        total = form.quantizer.ring.lift(aggregate.total).astype(float)
        seen.append(total[1 : 1 + entries] * form.quantizer.step)
        return honest(form, received, aggregate)

    monkeypatch.setattr(Form, "decode", decode)
    if not pinned:
        monkeypatch.setattr("coterie.deployment.contribution.check_unchanged", lambda *_: None)
    grid = make_grid(app, 2)
    for kind in ("f8", "f2"):
        model = ArrayRecord({"w": Array(np.full(entries, base, kind))})
        PrivateStrategy(FedAvg(**QUIET), **SETTINGS).start(grid, model, 1, timeout=1)
    assert len(seen) == (1 if pinned else 2)
    if pinned:
        return
    steps = np.arange(-8, 9) * unit
    grid_of_sums = SIZES[0] * steps[:, None] + SIZES[1] * steps[None, :]
    found = np.array([np.unravel_index(np.abs(grid_of_sums - one).argmin(), grid_of_sums.shape) for one in seen[-1]])
    for place, optimum in enumerate(optima):
        right = np.abs(steps[found[:, place]] + base - optimum) <= unit / 2 + 1e-9
        assert right.mean() > 0.95


def test_a_fractional_range_is_rounded_down_for_counters() -> None:
    """Clamped counters times odd weights were halves, and the variance of their rounding revealed the weights."""
    form = Form(RosterRecipe(clips=(("steps", 1000.5),)), 2)
    assert form.reach("steps", "i") == 1000
    assert form.reach("steps", "f") == 1000.5


def test_the_share_of_clipped_counters_is_not_sent() -> None:
    """A server that chooses where counters wrap around could compute every node's weight from it."""
    form, model = Form(RosterRecipe(), 2), {"steps": np.full(4, 2**40)}
    scaled = form.scale(model, AppReply({"steps": np.zeros(4, dtype="i8")}, {"num-examples": 3}))
    assert scaled.values.tolist() == [0.0]


@pytest.mark.parametrize("clip", [1e-4, 1.0])
def test_counts_of_steps_are_small_enough_for_dither_to_keep_its_binary_digits(clip: float) -> None:
    """In wide ranges counts reached 2^52, where float64 has no digits below 1, and rounding varied with the entry."""
    recipe = RosterRecipe(clip=clip, most_weight=1)
    form, model = Form(recipe, 2), {"bn.running_var": np.zeros(1)}
    largest = form.reach("bn.running_var", "f")
    scaled = form.scale(model, AppReply({"bn.running_var": np.array([largest])}, {"num-examples": 1}))
    assert max(float(np.abs(steps).max()) for steps, _ in scaled.steps) <= 2.0**43


@pytest.mark.parametrize(("sizes", "told"), [((310, 531, 1207, 2203), True), ((500, 500, 500, 500), False)])
def test_a_model_with_huge_gradients_reveals_the_sign_of_each_update(
    sizes: tuple[int, ...], told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A documented limit: the server chooses the model, and of updates far above the clip only signs are left.

    Sums of signs times different weights reveal the weights, and then all signs. If weights are equal, sums reveal only
    how many signs are negative.
    """
    rng = np.random.default_rng(4)
    moves = [rng.normal(0, 1e6, 512) for _ in sizes]
    _, total = totals_of_one_session(monkeypatch, [{"w": move} for move in moves], sizes)
    recipe = RosterRecipe()
    sums = np.rint(total[1:513] * recipe.quantizer(len(sizes)).step).astype(int)
    negative = (total[0] - sums) // 2  # the weights of those that moved down
    weights: list[int] = []
    subsets = {0: ()}
    for found in sorted(set(negative.tolist())):
        if found not in subsets:
            subsets |= {found + known: (*members, found) for known, members in subsets.items()}
            weights.append(found)
    solved = np.array([[weight in subsets[found] for found in negative.tolist()] for weight in weights])
    assert (len(weights) == len(sizes) and np.array_equal(solved, np.array(moves) < 0)) == told


def test_a_batch_counter_reveals_the_number_of_examples_of_two_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A documented limit: the sums of the weights, and of weights times batches, are two equations."""
    batches: list[dict[str, NDArray[Any]]] = [{"bn.num_batches_tracked": np.array(-(-size // 32))} for size in SIZES]
    _, total = totals_of_one_session(monkeypatch, batches, SIZES)
    weights, counted = int(total[0]), int(total[-1])
    solved = [
        (one, weights - one)
        for one in range(1, weights // 2 + 1)
        if one * -(-one // 32) + (weights - one) * -(-(weights - one) // 32) == counted
    ]
    assert solved == [SIZES]
