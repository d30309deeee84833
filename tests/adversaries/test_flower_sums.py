"""A Flower server computes single updates from one sum: by wide ranges, by the recipe, or by the order of records.

A test whose docstring says that it failed did so on the code that it was written for.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.support.flower import identity as identity
from tests.support.flower import make_grid, reply_of
from tests.support.flower_strategies import QUIET, last_mean
from tests.support.homes import home as home
from typer.testing import CliRunner

from coterie.cli.roster import app as roster_commands
from coterie.cohorts.circles import Circles
from coterie.cohorts.roster import Client, Roster
from coterie.deployment.engine import Arrays
from coterie.deployment.form import Form, Mean
from coterie.deployment.recipe import STATISTICS, Metric, RosterRecipe
from coterie.deployment.roster_folder import RosterFolder
from coterie.errors import ConfigError
from coterie.secagg.server import Aggregate
from coterie.transports.flower import PrivateStrategy, private_mod

SIZES = (531, 1207)
ENTRIES = 64
FARTHEST = 400
"""Units that a running variance moves by at most, as the attacker supposes."""
VARIANCES = np.random.default_rng(3).lognormal(2.5, 1.0, (len(SIZES), ENTRIES))
SETTINGS: dict[str, Any] = {"privacy": 2, "deadline": 1, "resume": False, "empty_rounds": 0}


def received(name: str, length: int) -> dict[str, NDArray[np.float64]]:
    return {name: np.zeros(length)}


def reply(name: str, moved: NDArray[np.float64], size: int) -> RecordDict:
    arrays = ArrayRecord({name: Array(np.asarray(moved))})
    return RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": size})})


@settings(max_examples=100)
@given(
    st.sampled_from([1e-5, 1e-2, 1.0]),
    st.sampled_from([(14, 8191), (24, 10_000), (16, 100)]),
    st.integers(1, 90),
    st.integers(1, 90),
    st.integers(-40, 40),
)
def test_a_sum_reveals_only_the_weighted_sum(
    clip: float, bits: tuple[int, int], one: int, other: int, shift: int
) -> None:
    """Two circles with the same weights and the same weighted sum of updates have the same vector, except for rounding.

    It failed: digits times weights were summed separately, and revealed how far each of two nodes had moved.
    """
    precision, most = bits
    recipe = RosterRecipe(clip=clip, clips=(("*", 1000 * clip), *STATISTICS), precision=precision, most_weight=most)
    form, given_model = Form(recipe, 2), received("w", 3)
    ring = form.quantizer.ring
    start = np.array([[1.0, -30.0, 7.25], [2.0, 11.0, -0.5]]) * clip
    moved = start + np.array([[other * shift], [-one * shift]]) * clip / 8
    totals = []
    for moves in start, moved:
        vectors = [
            form.encode(form.scale(given_model, reply_of(reply("w", move, size))), size, np.random.default_rng(1))
            for move, size in zip(moves, (one, other), strict=True)
        ]
        total = vectors[0] + vectors[1]
        ring.reduce(total)
        totals.append(total)
    difference = totals[1] - totals[0]
    ring.reduce(difference)
    # The share of entries that were clipped is a metric of its own; nothing is clipped here.
    assert np.abs(ring.lift(difference).astype(np.int64)).max() <= 4


def sums_of_one_session(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[int, NDArray[np.int64]]:
    """Play a session in which no one lies; return the sum of weights, and the elements after the rounded entries."""
    app = ClientApp(mods=[private_mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        place = int(context.node_config["partition-id"])
        now = message.content.array_records["arrays"][name].numpy() + VARIANCES[place]
        return Message(reply(name, now, SIZES[place]), reply_to=message)

    seen: list[NDArray[np.int64]] = []
    honest = Form.decode

    def decode(form: Form, given_model: Arrays, aggregate: Aggregate) -> Mean:
        seen.append(form.quantizer.ring.lift(aggregate.total).astype(np.int64))
        return honest(form, given_model, aggregate)

    monkeypatch.setattr(Form, "decode", decode)
    arrays = ArrayRecord({name: Array(np.zeros(ENTRIES))})
    PrivateStrategy(FedAvg(**QUIET), **SETTINGS).start(make_grid(app, len(SIZES)), arrays, 1, timeout=1)
    (total,) = seen
    return int(total[0]), total[1 + ENTRIES + 1 :][:ENTRIES]


def test_one_sum_does_not_reveal_the_running_variances_of_two_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Default settings, T = 2, and no one lies: the server only sees the sum.

    It failed: each entry of a wide range added a small whole number times the node's weight. Only one split of the
    sum of weights fits all entries, and then each has one solution: both nodes' variances to within 1.0, of up to 338.
    """
    total, sums = sums_of_one_session(monkeypatch, "bn.running_var")
    steps = np.arange(FARTHEST + 1)
    solved = []
    for first in range(1, total // 2 + 1):
        second = total - first
        left = sums[:, None] - first * steps
        fits = (left % second == 0) & (left >= 0) & (left // second <= FARTHEST)
        if (fits.sum(axis=1) == 1).all():
            mine = fits.argmax(axis=1)
            solved.append(2.0 * np.array([mine, (sums - first * mine) // second]))
    assert not any(np.abs(found - VARIANCES).max() <= 1.0 for found in solved)


def test_a_recipe_that_asks_for_one_metric_in_many_ranges_is_refused() -> None:
    """A metric that is declared once for each threshold reveals the values of a circle's nodes in one session.

    It failed: nodes accepted such a recipe, although a strategy cannot declare it. It is the attack by ranges that
    change from session to session, in a single session.
    """
    steps = tuple(Metric("loss", at / 10, at / 10 + 1e-6) for at in range(10))
    for metrics in ({"train_metrics": steps}, {"evaluate_metrics": steps}):
        with pytest.raises(ConfigError, match="once"):
            RosterRecipe.from_bytes(_unchecked(**metrics))


def test_a_recipe_whose_weight_is_a_metric_as_well_is_refused() -> None:
    """It failed: only the strategy refused it, and a lying server does not ask its own strategy."""
    with pytest.raises(ConfigError, match="once"):
        RosterRecipe.from_bytes(_unchecked(train_metrics=(Metric("num-examples", 22.0, 23.0),)))


def _unchecked(**changes: Any) -> bytes:  # noqa: ANN401
    """Return the bytes of a recipe without any check, as a lying server does."""
    with pytest.MonkeyPatch.context() as off:
        off.setattr(RosterRecipe, "__post_init__", lambda _recipe: None)
        return RosterRecipe(varying=("num-server-rounds", "server-round"), **changes).to_bytes()


def test_the_order_of_records_is_part_of_the_configuration() -> None:
    """Two records with two batch sizes, in both orders: an app that uses the first one trains in two ways.

    It failed: names and values were fixed, their order was not, so that there were two equations for one circle.
    """
    called: list[int] = []
    app = ClientApp(mods=[private_mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        config = next(iter(message.content.config_records.values()))
        called.append(int(str(config["batch-size"])))
        place = int(context.node_config["partition-id"])
        steps = -(-SIZES[place] // called[-1])
        now = message.content.array_records["arrays"]["w"].numpy() + 1e-4 * steps
        return Message(reply("w", now, SIZES[place]), reply_to=message)

    class TwoRecords(FedAvg):
        """A server that sends the records in one order or the other."""

        names: tuple[str, ...] = ("a", "b")

        def _construct_messages(self, record: RecordDict, node_ids: list[int], message_type: str) -> list[Message]:
            sizes = {"a": 1, "b": 64}
            more = {name: ConfigRecord({"batch-size": sizes[name]}) for name in self.names}
            arrays = dict(record.array_records.items())
            return list(super()._construct_messages(RecordDict({**more, **arrays}), node_ids, message_type))

    for names in ("a", "b"), ("b", "a"):
        strategy = TwoRecords(**QUIET)
        strategy.names = names
        arrays = ArrayRecord({"w": Array(np.zeros(3))})
        PrivateStrategy(strategy, **SETTINGS).start(make_grid(app, len(SIZES)), arrays, 1, timeout=1)
    assert set(called) == {1}


def test_an_app_may_change_the_model_it_received_without_changing_its_contribution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An app may put its new model into the records that it received, and reply with them.

    It failed: the change was computed from what the app had left there, and was zero for all nodes, without an error.
    """
    app = ClientApp(mods=[private_mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = message.content.array_records["arrays"]
        arrays["w"] = Array(arrays["w"].numpy() + 0.25)
        message.content["metrics"] = MetricRecord({"num-examples": 5})
        return Message(message.content, reply_to=message)

    kept = PrivateStrategy(FedAvg(**QUIET), **SETTINGS)
    kept.start(make_grid(app, 2), ArrayRecord({"w": Array(np.zeros(3))}), 1, timeout=1)
    mean = last_mean(kept)
    assert np.allclose(mean.arrays["w"], 0.25, atol=1e-3)


@settings(max_examples=100)
@given(st.lists(st.text(max_size=6), max_size=3), st.lists(st.text(max_size=6), max_size=3), st.text(max_size=6))
def test_recipes_that_differ_are_described_by_different_words(one: list[str], other: list[str], weight: str) -> None:
    """Operators pin a roster after they have read its recipe, and a strategy compares it by these words.

    It failed: the keys "a" and "b" were written like the one key "a, b".
    """
    recipes = [RosterRecipe(weight=weight, varying=tuple(names)) for names in (one, other)]
    recipes += [
        RosterRecipe(varying=("a", "b")),
        RosterRecipe(varying=("a, b",)),
        RosterRecipe(varying=("none",)),
        RosterRecipe(varying=()),
        RosterRecipe(weight="x; clip 1.0"),
    ]
    words = {tuple(recipe.settings().items()) for recipe in recipes}
    assert len(words) == len({recipe.to_bytes() for recipe in recipes})
    assert recipes[-1].settings()["weighted_by_key"] == "'x; clip 1.0'"


def test_a_roster_is_shown_with_its_whole_recipe(home: Path) -> None:
    """It failed: a name of 500 letters hid that a batch size may vary."""
    recipe = RosterRecipe(varying=("a" * 500, "batch-size"))
    clients = [Client("one", bytes([1]) * 32), Client("two", bytes([2]) * 32)]
    circles = Circles.of([(0, 1)])
    RosterFolder(home / "server" / "rosters").add(Roster.found(clients, circles, 2, recipe.to_bytes()))
    shown = CliRunner().invoke(roster_commands, ["show", "--home", str(home)])
    assert shown.exit_code == 0
    assert "batch-size" in shown.output


@pytest.mark.parametrize(
    "name", ["two\n  varying          none", "two\x1b[8m", "two, three", "two (retired)", "\u202eowt"]
)
def test_names_on_a_roster_cannot_be_mistaken_for_other_words(home: Path, name: str) -> None:
    """An operator reads the rosters of a lying server before pinning one.

    It failed: a name with line breaks looked like lines of a recipe, one with a comma like two nodes, and one with a
    control sequence hid everything after it.
    """
    clients = [Client("one", bytes([1]) * 32), Client(name, bytes([2]) * 32)]
    roster = Roster.found(clients, Circles.of([(0, 1)]), 2, RosterRecipe(varying=("batch-size",)).to_bytes())
    RosterFolder(home / "server" / "rosters").add(roster)
    shown = CliRunner().invoke(roster_commands, ["show", "--home", str(home)])
    assert shown.exit_code == 0
    assert all(sign.isprintable() for sign in shown.output.replace("\n", ""))
    assert f"circle 0: {name!r}, one" in shown.output or f"circle 0: one, {name!r}" in shown.output
    assert shown.output.count("\n  varying ") == 1


def test_a_pattern_is_not_mistaken_for_the_range_of_integers() -> None:
    """It failed: the ranges of a recipe were written "integers 3.0, integers 1000000.0"."""
    assert RosterRecipe(clips=(("integers", 3.0),)).settings()["clips"] == "'integers' 3.0, integers 1000000.0"


def sums_by_rate(rates: NDArray[np.float64], steps: tuple[int, ...]) -> NDArray[np.float64]:
    """Play a session for each learning rate with one model; each node takes its number of steps towards its optimum."""
    optima = np.array([[0.3, -0.2], [-0.1, 0.4]])
    app = ClientApp(mods=[private_mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        place = int(context.node_config["partition-id"])
        rate = float(str(message.content.config_records["config"]["lr"]))
        now = (1 - (1 - rate) ** steps[place]) * optima[place]
        return Message(reply("w", now, SIZES[place]), reply_to=message)

    found = []
    for rate in rates:
        kept = PrivateStrategy(FedAvg(**QUIET), **SETTINGS, varying=("lr",), precision=40)
        config = ConfigRecord({"lr": float(rate)})
        arrays = ArrayRecord({"w": Array(np.zeros(2))})
        kept.start(make_grid(app, len(SIZES)), arrays, 1, timeout=1, train_config=config)
        mean = last_mean(kept)
        found.append(sum(SIZES) * mean.arrays["w"])
    degree = np.vander(1 - rates, len(rates), increasing=True)
    return np.asarray(np.linalg.solve(degree, np.array(found)))


@pytest.mark.parametrize(("steps", "told"), [((2, 4), True), ((1, 1), False)])
def test_a_varying_rate_distinguishes_nodes_with_different_numbers_of_steps(steps: tuple[int, int], told: bool) -> None:
    """A documented limit: n local steps of rate r on a common curvature move by 1 - (1 - r)^n.

    The sums are a polynomial in 1 - r. The coefficient of degree n belongs to the nodes with n steps.
    """
    by_degree = sums_by_rate(np.linspace(0.2, 1.8, 5), steps)
    apart = [np.abs(-by_degree[2] / SIZES[0] - [0.3, -0.2]).max(), np.abs(-by_degree[4] / SIZES[1] - [-0.1, 0.4]).max()]
    assert (max(apart) < 1e-4) == told


def test_a_clip_far_below_the_updates_reveals_their_signs() -> None:
    """A documented limit: clipped updates are signs, and sums of signs times different weights have one solution."""
    recipe = RosterRecipe(clip=1e-9)
    form, model = Form(recipe, 2), received("w", 20)
    updates = np.random.default_rng(1).normal(0, 0.05, (2, 20))
    rng = np.random.default_rng(2)
    vectors = [
        form.encode(form.scale(model, reply_of(reply("w", update, size))), size, rng)
        for update, size in zip(updates, SIZES, strict=True)
    ]
    total = vectors[0] + vectors[1]
    form.quantizer.ring.reduce(total)
    sums = form.quantizer.ring.lift(total)[1:21].astype(float) * recipe.most_weight / form.quantizer.levels
    pairs = np.array([(one, other) for one in (-1, 1) for other in (-1, 1)])
    signs = pairs[np.abs(sums[:, None] - pairs @ SIZES).argmin(axis=1)].T
    assert (signs == np.sign(updates)).all()
