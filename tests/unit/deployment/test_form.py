import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from coterie.arithmetic.quantize import MARGIN
from coterie.arithmetic.ring import RingVector
from coterie.cohorts.roster import Client, Roster
from coterie.deployment.engine import AppReply, Arrays, Task
from coterie.deployment.form import Form, Mean, as_whole_numbers, content_digest, form_under
from coterie.deployment.recipe import Metric, RosterRecipe
from coterie.errors import ConfigError, InputError, PeerProtocolError, RoundAborted
from coterie.secagg.server import Aggregate

DTYPES = st.sampled_from([np.float16, np.float32, np.float64, np.int64, np.uint8])
ANYTHING = st.floats() | st.integers() | st.integers(-(10**400), 10**400)


def model(arrays: dict[str, Any]) -> Arrays:
    return {name: np.asarray(array) for name, array in arrays.items()}


def make(clients: int = 2, *, arrays: bool = True, **recipe: Any) -> Form:  # noqa: ANN401
    return Form(RosterRecipe(**recipe), clients, arrays)


def reply_to(received: Arrays, moves: dict[str, Any], weight: float = 1, **metrics: float) -> AppReply:
    moved = {
        name: np.asarray((base + np.asarray(moves.get(name, 0))).astype(base.dtype)) for name, base in received.items()
    }
    return AppReply(moved, {"num-examples": weight, **metrics})


def encoded(form: Form, received: Arrays, reply: AppReply) -> RingVector:
    scaled = form.scale(received, reply)
    return form.encode(scaled, scaled.weight, np.random.default_rng(0))


def mean_of(form: Form, received: Arrays, replies: list[AppReply]) -> Mean:
    vectors = [encoded(form, received, reply) for reply in replies]
    total = vectors[0].copy()
    for vector in vectors[1:]:
        total += vector
    form.quantizer.ring.reduce(total)
    return form.decode(received, Aggregate(total, tuple(f"client-{number}" for number in range(len(vectors)))))


@pytest.mark.parametrize("piece", [1, 3, 64])
def test_a_large_model_is_encoded_in_pieces_with_the_same_result(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    received = model(
        {"w": np.linspace(-1, 1, 50, dtype=np.float32).reshape(5, 10), "bn.running_var": np.ones(7), "n": np.arange(4)}
    )
    moves = {"w": np.linspace(-2, 2, 50).reshape(5, 10), "bn.running_var": np.arange(7) * 900.0, "n": 3}
    reply = reply_to(received, moves, 40)
    reply.arrays["w"][0, 0] = np.nan
    form = make()
    whole = encoded(form, received, reply)
    monkeypatch.setattr("coterie.deployment.form._PIECE", piece)
    assert np.array_equal(encoded(form, received, reply), whole)


@given(st.data())
@settings(max_examples=25)
def test_the_sum_of_contributions_is_the_mean_that_flower_would_compute(data: st.DataObject) -> None:
    shapes = data.draw(st.lists(hnp.array_shapes(min_dims=0, max_dims=3, max_side=4), min_size=1, max_size=3))
    received = model({f"a{at}": data.draw(hnp.arrays(np.float64, shape, elements=st.floats(-5, 5)))
                      for at, shape in enumerate(shapes)})  # fmt: skip
    clients = data.draw(st.integers(2, 5))
    form = make(clients, train_metrics=(Metric("loss", 0.0, 4.0),), most_weight=64, precision=30)
    replies, weights = [], []
    for at in range(clients):
        weight = data.draw(st.integers(0 if at else 1, 64))
        # Below 1: a sum with a received entry is rounded, and a change that is rounded up would count as clipped.
        moves = {f"a{at}": data.draw(hnp.arrays(np.float64, shape, elements=st.floats(-0.999, 0.999)))
                 for at, shape in enumerate(shapes)}  # fmt: skip
        replies.append(reply_to(received, moves, weight, loss=data.draw(st.floats(0, 4))))
        weights.append(weight)
    arrays, metrics, clipped = mean_of(form, received, replies)

    shares = np.array(weights) / sum(weights)
    atol = 1e-6 * max(1, clients / sum(weights) * 64)
    for name, array in arrays.items():
        expected = sum(share * reply.arrays[name] for share, reply in zip(shares, replies, strict=True))
        assert np.allclose(array, expected, atol=atol)
    assert metrics["num-examples"] == sum(weights)
    losses: list[Any] = [reply.metrics["loss"] for reply in replies]
    assert metrics["loss"] == pytest.approx(float(shares @ losses), abs=4 * atol)
    assert clipped == pytest.approx(dict.fromkeys(arrays, 0), abs=atol)


@pytest.mark.parametrize(("weights", "most"), [((3, 4), 10_000), ((3, 4), 4), ((9_000,) * 5, 10_000)])
def test_the_error_of_rounding_is_the_stated_one(weights: tuple[int, ...], most: int) -> None:
    received, form, rng = model({"w": np.zeros(20_000)}), make(len(weights), most_weight=most), np.random.default_rng(1)
    scales = [form.scale(received, reply_to(received, {"w": 0.3}, weight)) for weight in weights]
    total = np.zeros_like(form.encode(scales[0], scales[0].weight, rng))
    for scaled in scales:
        total += form.encode(scaled, scaled.weight, rng)
    form.quantizer.ring.reduce(total)
    found = form.decode(received, Aggregate(total, tuple(map(str, range(len(weights)))))).arrays["w"]
    stated = form.rounding_error(len(weights), sum(weights))
    assert 0.9 * stated < float(np.std(found)) < 1.02 * stated


@given(DTYPES)
def test_arrays_of_every_kind_come_back(dtype: type[Any]) -> None:
    received = model({"w": np.array([3, 4], dtype), "zero-d": np.array(2, dtype)})
    reply = reply_to(received, {"w": [1, 0], "zero-d": 1})
    arrays = mean_of(make(precision=30, most_weight=1), received, [reply, reply]).arrays
    assert np.allclose(arrays["w"], [4, 4], atol=1e-4)
    assert arrays["zero-d"].shape == ()
    assert np.allclose(arrays["zero-d"], 3, atol=1e-4)
    if np.dtype(dtype).kind == "f":
        assert arrays["w"].dtype == dtype


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(1, 10_000)), min_size=1, max_size=4),
    st.sampled_from([1e-3, 1.0, 50.0]),
    st.sampled_from([(24, 10_000), (24, 2**23 - 1), (30, 1), (53, 1)]),
)
def test_a_wide_range_keeps_the_precision_of_a_narrow_one(
    moves: list[tuple[float, int]], clip: float, bits: tuple[int, int]
) -> None:
    """Finer steps modulo the ring carry the digits that one rounded number loses."""
    precision, most = bits
    if precision == 53:
        moves = moves[:1]
    received = model({"bn.running_var": np.zeros(1)})
    form = make(max(1, len(moves)), clip=clip, precision=precision, most_weight=most)
    weights = [min(weight, most) for _, weight in moves]
    replies = [
        reply_to(received, {"bn.running_var": move}, weight)
        for (move, _), weight in zip(moves, weights, strict=True)
    ]  # fmt: skip
    mean, _, clipped = mean_of(form, received, replies)
    expected = sum(move * weight for (move, _), weight in zip(moves, weights, strict=True)) / sum(weights)
    unit = max(clip, 1e6 * form.quantizer.levels * 2.0**-43)
    error = unit * form.quantizer.error_bound(len(moves), sum(weights)) + 1e-9
    assert abs(float(mean["bn.running_var"][0]) - expected) <= error
    assert clipped["bn.running_var"] == pytest.approx(0, abs=form.quantizer.error_bound(len(moves), sum(weights)))


def test_the_statistics_of_a_batch_normalisation_are_not_clipped() -> None:
    received = model(
        {
            "weight": np.zeros(2, np.float32),
            "bn.num_batches_tracked": np.array(100),
            "bn.running_mean": np.zeros(2, np.float32),
            "bn.running_var": np.ones(2, np.float32),
        }
    )
    moves = {"bn.num_batches_tracked": 40, "bn.running_mean": [-123.0, 1e-3], "bn.running_var": [4616.0, -0.999]}
    arrays, _, clipped = mean_of(make(), received, [reply_to(received, moves, 100)] * 2)
    assert arrays["bn.num_batches_tracked"] == 140
    assert np.allclose(arrays["bn.running_mean"], [-123, 1e-3], atol=1e-4)
    assert np.allclose(arrays["bn.running_var"], [4617, 1e-3], atol=1e-3)
    assert (arrays["bn.running_var"] > 0).all()
    assert clipped == pytest.approx(dict.fromkeys(arrays, 0.0), abs=1e-3)


@given(st.lists(st.tuples(st.integers(-(10**6), 10**6), st.integers(1, 10_000)), min_size=1, max_size=4))
def test_the_mean_of_whole_numbers_is_exact(moves: list[tuple[int, int]]) -> None:
    """A node that reads a mean as an integer cuts off its fraction, so 44.9999 would become 44."""
    received = model({"count": np.array(7)})
    replies = [reply_to(received, {"count": move}, weight) for move, weight in moves]
    total = sum(move * weight for move, weight in moves)
    mean = mean_of(make(max(2, len(moves))), received, replies).arrays["count"]
    assert float(mean) == 7 + total / sum(weight for _, weight in moves)


def test_values_beyond_the_range_are_clipped_and_counted_for_each_array() -> None:
    received = model({"weight": np.zeros(4), "other": np.zeros(4), "empty": np.zeros(0)})
    form = make(clips=(("oth*", 10.0),), most_weight=1)
    moves = {"weight": [5.0, 0, 0, 0], "other": 8.0}
    arrays, _, clipped = mean_of(form, received, [reply_to(received, moves)] * 2)
    assert np.allclose(arrays["weight"], [1, 0, 0, 0], atol=1e-5)
    assert np.allclose(arrays["other"], 8, atol=1e-4)
    assert clipped == pytest.approx({"weight": 1 / 4, "other": 0, "empty": 0}, abs=1e-5)


@given(st.sampled_from([0.0, 1.0, -5.0, 7.0]), st.integers(1, 3))
def test_a_mean_at_the_end_of_its_range_stays_within_it(accuracy: float, weight: int) -> None:
    """Dither may change it slightly, but an accuracy of 1.0004 is impossible."""
    received = model({"w": np.zeros(1)})
    form = make(train_metrics=(Metric("accuracy", 0.0, 1.0),))
    _, metrics, clipped = mean_of(form, received, [reply_to(received, {}, weight, accuracy=accuracy)] * 2)
    found = metrics["accuracy"]
    assert isinstance(found, float)
    assert 0 <= found <= 1
    assert 0 <= clipped["w"] <= 1


def test_metrics_that_were_not_declared_never_leave_their_node() -> None:
    received = model({"w": np.zeros(1)})
    metrics = mean_of(make(), received, [reply_to(received, {}, 3, secret=1.0)] * 2).metrics
    assert set(metrics) == {"num-examples"}


@given(weight=ANYTHING, loss=ANYTHING, entries=st.lists(st.floats(), min_size=2, max_size=2), base=st.floats())
def test_no_value_of_a_contribution_causes_a_refusal(
    weight: float, loss: float, entries: list[float], base: float
) -> None:
    """A refusal that depends on data would tell the server, by name, something about one node's data."""
    form = make(train_metrics=(Metric("loss", -1.0, 3.0),), most_weight=50)
    received = model({"w": np.full(2, base), "running_var": np.full(2, base)})
    reply = AppReply({name: np.array(entries) for name in ("w", "running_var")}, {"num-examples": weight, "loss": loss})
    scaled = form.scale(received, reply)
    expected = 0 if isinstance(weight, float) and math.isnan(weight) else math.floor(max(0, min(weight, 50)))
    assert scaled.weight == expected
    vector = form.encode(scaled, scaled.weight, np.random.default_rng(0))
    assert vector[0] == expected
    if expected == 0:  # only dither is left; without it, a sum would reveal how many clients have weight 0
        assert np.abs(form.quantizer.ring.lift(vector)).max() <= MARGIN
        return
    metrics = form.decode(received, Aggregate(vector, ("one",))).metrics
    clamped = 1.0 if isinstance(loss, float) and math.isnan(loss) else float(max(-1, min(loss, 3)))
    assert metrics["loss"] == pytest.approx(clamped, abs=1e-3)


def test_values_that_are_not_finite_become_no_change_or_the_end_of_the_range() -> None:
    received = model({"w": np.zeros(4)})
    reply = reply_to(received, {"w": [math.nan, math.inf, -math.inf, 0.5]}, 100)
    mean, _, clipped = mean_of(make(most_weight=100), received, [reply] * 2)
    assert np.allclose(mean["w"], [0, 1, -1, 0.5], atol=1e-5)
    assert clipped["w"] == pytest.approx(3 / 4, abs=1e-5)


def test_a_sum_with_zero_weight_has_no_result() -> None:
    received = model({"w": np.zeros(2)})
    with pytest.raises(RoundAborted, match="all weights are 0"):
        mean_of(make(), received, [reply_to(received, {}, 0)] * 2)


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (AppReply({}, {"num-examples": 1}), "lacks array 'w'"),
        (AppReply({}, {"batches": 1}), "number 'num-examples'"),
        (AppReply({}, {"num-examples": [1]}), "number 'num-examples'"),
        (reply_to(model({"w": np.zeros(3)}), {}), "shape"),
        (reply_to(model({"w": np.array([True, False])}), {}), "bool"),
    ],
)
def test_a_reply_that_lacks_something_is_refused_with_its_reason(reply: AppReply, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        make().scale(model({"w": np.zeros(2)}), reply)


def test_an_array_without_a_mean_is_refused() -> None:
    with pytest.raises(InputError, match="'mask' is of bool"):
        make().layout(model({"mask": np.array([True])}))


@given(hnp.arrays(np.float64, 3) | hnp.arrays(np.float32, 3), st.sampled_from([np.int64, np.uint8, np.int32]))
def test_means_of_whole_numbers_are_rounded(found: Any, dtype: type[Any]) -> None:  # noqa: ANN401
    count = as_whole_numbers(found, np.dtype(dtype))
    assert count.dtype == dtype
    assert as_whole_numbers(count, np.dtype(dtype)) is count
    for value, rounded in zip(found.tolist(), count.tolist(), strict=True):
        if abs(value) < 100 and (value >= 0 or dtype is not np.uint8):
            assert rounded == round(value)


def test_the_digest_of_the_content_covers_all_of_a_clients_work() -> None:
    form, task = make(), Task(7, "train", "1")
    names = {
        content_digest(b"w", form, b"a", task),
        content_digest(b"w", form, b"b", task),
        content_digest(b"w", make(clip=2.0), b"a", task),
        content_digest(b"w", make(most_weight=9), b"a", task),
        content_digest(b"w", make(arrays=False), b"a", task),
        content_digest(b"w", make(3), b"a", task),
        content_digest(b"v", form, b"a", task),
        content_digest(b"w", form, b"a", Task(8, "train", "1")),
        content_digest(b"w", form, b"a", Task(7, "train.other", "1")),
        content_digest(b"w", form, b"a", Task(7, "train", "2")),
    }
    assert len(names) == 10


def test_the_recipe_of_a_roster_gives_the_form_of_each_kind_of_function() -> None:
    clients = tuple(Client(name) for name in "abc")
    metrics = (Metric("accuracy", 0, 1),)
    plain = Roster(privacy=2, clients=clients, circles=((0, 1, 2),), recipe=RosterRecipe().to_bytes())
    measured = Roster(privacy=2, clients=clients, recipe=RosterRecipe(evaluate_metrics=metrics).to_bytes())
    assert form_under(plain, "train") == form_under(plain, "train.other") == make(3)
    assert form_under(measured, "evaluate") == make(3, arrays=False, evaluate_metrics=metrics)
    for roster, kind in (plain, "evaluate"), (plain, "query"), (measured, "query"), (plain, ""):
        with pytest.raises(PeerProtocolError, match="sums nothing"):
            form_under(roster, kind)
    with pytest.raises(ConfigError, match="older version of Coterie"):
        form_under(Roster(privacy=2, clients=clients), "train")
