from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from coterie.arithmetic.ring import RingVector
from coterie.errors import ConfigError, InputError
from coterie.secagg.server import Aggregate
from coterie.transports.flower.form import CLIPPED, Form, Metric, Task, content_digest, declared

DTYPES = st.sampled_from([np.float16, np.float32, np.float64, np.int64, np.uint8])


def model(arrays: dict[str, Any]) -> RecordDict:
    return RecordDict({"arrays": ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})})


def reply_to(received: RecordDict, moves: dict[str, Any], weight: float = 1, **metrics: float) -> RecordDict:
    (arrays,) = received.array_records.values()
    moved = {}
    for name, array in arrays.items():
        base = array.numpy()
        moved[name] = Array(np.asarray((base + np.asarray(moves.get(name, 0))).astype(base.dtype)))
    return RecordDict({"model": ArrayRecord(moved), "m": MetricRecord({"num-examples": weight, **metrics})})


def summed(form: Form, vectors: list[RingVector]) -> Aggregate:
    ring = form.quantizer.ring
    total = vectors[0].copy()
    for vector in vectors[1:]:
        total += vector
    ring.reduce(total)
    names = tuple(f"client-{number}" for number in range(len(vectors)))
    return Aggregate(total, names)


@given(st.data())
@settings(max_examples=25)
def test_the_sum_of_contributions_is_the_mean_that_flower_would_compute(data: st.DataObject) -> None:
    shapes = data.draw(st.lists(hnp.array_shapes(min_dims=0, max_dims=3, max_side=4), min_size=1, max_size=3))
    received = model({f"a{at}": data.draw(hnp.arrays(np.float64, shape, elements=st.floats(-5, 5)))
                      for at, shape in enumerate(shapes)})  # fmt: skip
    clients = data.draw(st.integers(2, 5))
    form = Form(clients=clients, metrics=(Metric("loss", 0.0, 4.0),), most_weight=64, precision=30)
    replies, weights = [], []
    for _ in range(clients):
        weight = data.draw(st.integers(1, 64))
        moves = {f"a{at}": data.draw(hnp.arrays(np.float64, shape, elements=st.floats(-1, 1)))
                 for at, shape in enumerate(shapes)}  # fmt: skip
        replies.append(reply_to(received, moves, weight, loss=data.draw(st.floats(0, 4))))
        weights.append(weight)
    rng = np.random.default_rng(0)
    arrays, metrics = form.decode(received, summed(form, [form.encode(received, reply, rng) for reply in replies]))

    shares = np.array(weights) / sum(weights)
    for name, array in arrays.items():
        expected = sum(
            share * reply.array_records["model"][name].numpy() for share, reply in zip(shares, replies, strict=True)
        )
        assert np.allclose(array.numpy(), expected, atol=1e-6)
    assert metrics["num-examples"] == sum(weights)
    losses: list[Any] = [reply.metric_records["m"]["loss"] for reply in replies]
    assert metrics["loss"] == pytest.approx(float(shares @ losses), abs=1e-6)
    assert metrics[CLIPPED] == pytest.approx(0, abs=1e-6)


@given(DTYPES)
def test_arrays_of_every_kind_come_back(dtype: type[Any]) -> None:
    received = model({"w": np.array([3, 4], dtype), "zero-d": np.array(2, dtype)})
    form = Form(clients=2, precision=30, most_weight=1)
    rng = np.random.default_rng(0)
    vectors = [form.encode(received, reply_to(received, {"w": [1, 0], "zero-d": 1}), rng) for _ in range(2)]
    arrays, _ = form.decode(received, summed(form, vectors))
    assert np.allclose(arrays["w"].numpy(), [4, 4], atol=1e-4)
    assert arrays["zero-d"].numpy().shape == ()
    assert np.allclose(arrays["zero-d"].numpy(), 3, atol=1e-4)
    if np.dtype(dtype).kind == "f":
        assert arrays["w"].numpy().dtype == dtype


def test_a_counter_of_batches_moves_further_than_a_weight_may() -> None:
    received = model({"weight": np.zeros(2, np.float32), "bn.num_batches_tracked": np.array(100)})
    form = Form(clients=2, precision=24, most_weight=1)
    rng = np.random.default_rng(0)
    moves = {"weight": 0.5, "bn.num_batches_tracked": 40}
    arrays, _ = form.decode(received, summed(form, [form.encode(received, reply_to(received, moves), rng)] * 2))
    assert arrays["bn.num_batches_tracked"].numpy() == pytest.approx(140, abs=1e-3)


def test_what_lies_beyond_the_range_is_clipped_and_told() -> None:
    received = model({"weight": np.zeros(4), "running_var": np.zeros(4)})
    form = Form(clients=2, clips=(("*var", 10.0),), most_weight=1)
    rng = np.random.default_rng(0)
    moves = {"weight": [5.0, 0, 0, 0], "running_var": 8.0}
    arrays, metrics = form.decode(received, summed(form, [form.encode(received, reply_to(received, moves), rng)] * 2))
    assert np.allclose(arrays["weight"].numpy(), [1, 0, 0, 0], atol=1e-5)
    assert np.allclose(arrays["running_var"].numpy(), 8, atol=1e-4)
    assert metrics[CLIPPED] == pytest.approx(1 / 8, abs=1e-5)


def test_metrics_that_were_not_declared_never_leave() -> None:
    received = model({"w": np.zeros(1)})
    form = Form(clients=2)
    rng = np.random.default_rng(0)
    vectors = [form.encode(received, reply_to(received, {}, 3, secret=1.0), rng)] * 2
    _, metrics = form.decode(received, summed(form, vectors))
    assert set(metrics) == {"num-examples", CLIPPED}


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (RecordDict({"m": MetricRecord({"num-examples": 1})}), "exactly one ArrayRecord"),
        (RecordDict({"a": ArrayRecord({"w": Array(np.zeros(2))})}), "exactly one MetricRecord"),
        (RecordDict({"a": ArrayRecord({}), "m": MetricRecord({"num-examples": 1})}), "lacks array 'w'"),
        (reply_to(model({"w": np.zeros(3)}), {}), "shape"),
        (reply_to(model({"w": np.zeros(2)}), {"w": np.nan}), "NaN"),
        (reply_to(model({"w": np.zeros(2)}), {}, 0), "weight"),
        (reply_to(model({"w": np.zeros(2)}), {}, 1.5), "whole number"),
        (reply_to(model({"w": np.zeros(2)}), {}, float("nan")), "num-examples"),
    ],
)
def test_a_reply_that_cannot_be_summed_is_refused_with_its_reason(reply: RecordDict, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Form(clients=2).encode(model({"w": np.zeros(2)}), reply, np.random.default_rng())


def test_an_array_without_a_mean_is_refused() -> None:
    with pytest.raises(InputError, match="'mask' is of bool"):
        Form(clients=2).layout(model({"mask": np.array([True])}))


@pytest.mark.parametrize(
    "wrong",
    [{"clip": 0.0}, {"clip": float("nan")}, {"clips": (("*", -1.0),)}, {"precision": 60}, {"most_weight": 2**40}],
)
def test_forms_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Form(clients=100, **wrong)
    with pytest.raises(ConfigError):
        declared({"loss": (1.0, 1.0)}) and Form(clients=2, metrics=declared({"loss": (1.0, 1.0)}))


@pytest.mark.parametrize(
    "written",
    [
        {"clip": 2},
        {"clip": np.float64(2)},
        {"clips": ((np.str_("layer*"), 10),)},
        {"counter_clip": 5},
        {"weight": np.str_("count"), "metrics": (Metric(np.str_("loss"), 0, 10),)},
    ],
)
def test_a_form_is_the_same_for_server_and_nodes_however_its_numbers_are_written(written: dict[str, Any]) -> None:
    form = Form(clients=4, **written)
    assert Form.from_bytes(form.to_bytes()) == form
    assert Form.from_bytes(form.to_bytes()).to_bytes() == form.to_bytes()


@given(st.binary(max_size=60))
def test_bytes_that_are_no_form_are_refused(data: bytes) -> None:
    with pytest.raises(ConfigError):
        Form.from_bytes(data)


def test_the_content_is_named_by_all_that_a_client_works_on() -> None:
    received, form, task = model({"w": np.zeros(2)}), Form(clients=2), Task(7, "train", "1")
    names = {
        content_digest(received, form, b"a", task),
        content_digest(received, form, b"b", task),
        content_digest(received, Form(clients=2, clip=2.0), b"a", task),
        content_digest(model({"w": np.ones(2)}), form, b"a", task),
        content_digest(received, form, b"a", Task(8, "train", "1")),
        content_digest(received, form, b"a", Task(7, "train.other", "1")),
        content_digest(received, form, b"a", Task(7, "train", "2")),
    }
    assert len(names) == 7
    assert Form.from_bytes(form.to_bytes()) == form
