from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cast import identity_for, names

import coterie
from coterie.errors import ConfigError, InputError, RoundAborted
from coterie.graphs.topology import Complete, ErdosRenyi, Harary
from coterie.secagg import Step
from coterie.transports.faults import Fault, FaultKind, Faults, dropouts


def inputs_of(size: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {name: [rng.normal(size=(3, 4)).astype(np.float32), rng.normal(size=5)] for name in names(size)}


@settings(max_examples=30)
@given(
    st.integers(2, 25),
    st.sampled_from([None, Complete(), Harary(4), ErdosRenyi(0.9)]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 1000),
)
def test_the_mean_is_within_its_bound(size: int, topology: Any, weighted: bool, active: bool, seed: int) -> None:  # noqa: ANN401
    inputs = inputs_of(size, seed)
    rng = np.random.default_rng(seed)
    weights = {name: int(rng.integers(1, 100)) for name in inputs} if weighted else None
    try:
        outcome = coterie.aggregate(
            inputs,
            clip=2.0,
            weights=weights,
            topology=topology,
            identities={name: identity_for(name) for name in inputs} if active else None,
            colluders=0,
            faults=dropouts(0.02, seed),
            seed=seed,
        )
    except RoundAborted:
        return
    used = [weights[name] if weights else 1 for name in outcome.clients]
    assert outcome.total_weight == sum(used)
    assert isinstance(outcome.mean, list)
    for position, mean in enumerate(outcome.mean):
        clipped = [np.clip(inputs[name][position].astype(np.float64), -2, 2) for name in outcome.clients]
        expected = sum(weight * array for weight, array in zip(used, clipped, strict=True)) / sum(used)
        assert mean.shape == expected.shape
        assert mean.dtype == inputs[names(size)[0]][position].dtype
        assert np.abs(mean - expected).max() <= outcome.error_bound + 2e-7
    assert isinstance(outcome.sum, list)
    assert np.allclose(outcome.sum[0], outcome.mean[0] * outcome.total_weight)


def test_one_array_is_returned_as_one_array() -> None:
    outcome = coterie.aggregate({name: np.full(3, 0.5) for name in names(4)}, clip=1.0)
    assert isinstance(outcome.mean, np.ndarray)
    assert isinstance(outcome.sum, np.ndarray)
    assert np.abs(outcome.mean - 0.5).max() <= outcome.error_bound
    assert np.abs(outcome.sum - 2).max() <= 4 * outcome.error_bound
    assert outcome.clipped == 0
    assert coterie.aggregate({name: np.full(3, 1.5) for name in names(4)}, clip=1.0).clipped == 12


def test_circles_are_whole_or_absent() -> None:
    faults = Faults(0, (Fault(FaultKind.DROP, Step.MASK, ("client-05",)),))
    circles = {name: number // 2 for number, name in enumerate(names(8))}
    outcome = coterie.aggregate(inputs_of(8), clip=1.0, circles=circles, faults=faults)
    assert outcome.clients == tuple(name for name in names(8) if name not in ("client-04", "client-05"))


def test_larger_cohorts_get_a_sparse_graph() -> None:
    outcome = coterie.aggregate({name: np.zeros(2) for name in names(60)}, clip=1.0)
    shared = outcome.report.steps[Step.SHARE].upload_bytes
    assert max(shared) < 40 * 120


def test_names_and_numbers_of_numpy_are_accepted() -> None:
    """Messages carry only Python's own."""
    keys = np.array(names(6))
    inputs = {name: np.full(3, 0.5) for name in keys}
    outcome = coterie.aggregate(
        inputs,
        clip=np.float32(1.0),  # type: ignore[arg-type]
        weights=dict(zip(keys, np.arange(1, 7), strict=True)),
        precision=np.int64(16),  # type: ignore[arg-type]
        topology=Harary(np.int64(4)),  # type: ignore[arg-type]
        threshold=np.int64(2),  # type: ignore[arg-type]
        circles=dict(zip(keys, np.arange(6) // 3, strict=True)),
        minimum=np.int64(3),  # type: ignore[arg-type]
        colluders=np.int64(1),  # type: ignore[arg-type]
        seed=np.int64(5),  # type: ignore[arg-type]
    )
    assert (outcome.clients, outcome.total_weight) == (names(6), 21)
    assert {type(name) for name in outcome.clients} == {str}
    assert np.abs(outcome.mean - 0.5).max() <= outcome.error_bound
    assert coterie.aggregate(inputs, clip=1.0, topology=ErdosRenyi(np.float64(1.0))).clients == names(6)


class Layers(NamedTuple):
    weights: Any
    bias: Any


def test_a_named_tuple_is_returned_as_one() -> None:
    outcome = coterie.aggregate({name: Layers(np.full(3, 0.5), np.zeros(1)) for name in names(3)}, clip=1.0)
    assert isinstance(outcome.mean, Layers)
    assert np.abs(outcome.mean.weights - 0.5).max() <= outcome.error_bound
    assert outcome.sum.bias.shape == (1,)


@pytest.mark.parametrize(
    ("inputs", "changes", "error"),
    [
        ({}, {}, InputError),
        ({"a": np.zeros(2), "b": np.zeros(3)}, {}, InputError),
        ({"a": np.zeros(2), "b": np.zeros(2, np.float32)}, {}, InputError),
        ({"a": np.zeros(2), "b": np.array([np.nan, 0])}, {}, InputError),
        ({"a": np.zeros(2), "b": np.zeros(2)}, {"weights": {"a": 1}}, ConfigError),
        ({"a": np.zeros(2), "b": np.zeros(2)}, {"weights": {"a": 1, "b": 0}}, InputError),
        ({"a": np.zeros(2), "b": np.zeros(2)}, {"weights": {"a": 1, "b": 1.5}}, InputError),
        ({"a": np.zeros(2), "b": np.zeros(2)}, {"clip": 0}, ConfigError),
        ({"a": np.zeros(2)}, {}, ConfigError),
        ({"a": {"w": np.zeros(2)}, "b": {"v": np.zeros(2)}}, {}, InputError),
        ({"a": {"w": np.zeros(2)}, "b": [np.zeros(2)]}, {}, InputError),
        ({"a": {"n": np.zeros(2, int)}, "b": {"n": np.zeros(2, int)}}, {}, InputError),
        ({"a": "words", "b": "words"}, {}, InputError),
        ({"a": np.zeros(2), "\ud800": np.zeros(2)}, {}, InputError),
        ({"a": np.zeros(2), "b": np.zeros(2)}, {"circles": {"a": 2**63, "b": 2**63}}, ConfigError),
        ({"a": np.zeros(2), "b": np.zeros(2)}, {"colluders": 1}, ConfigError),
        ({"a": np.zeros(2), "b": np.zeros(2)}, {"dropout": 1}, ConfigError),
    ],
)
def test_bad_input_is_refused_before_anything_is_sent(inputs: Any, changes: Any, error: type[Exception]) -> None:  # noqa: ANN401
    with pytest.raises(error):
        coterie.aggregate(inputs, **({"clip": 1.0} | changes))


def test_state_dicts_and_tensors_come_back_as_they_went_in() -> None:
    torch = pytest.importorskip("torch", reason="training needs coterie[train]")
    models = {name: torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2).double()) for name in names(4)}
    states = {name: model.state_dict() for name, model in models.items()}
    outcome = coterie.aggregate(states, clip=2.0)
    first = states[names(4)[0]]
    assert outcome.mean.keys() == {key for key, tensor in first.items() if tensor.is_floating_point()}
    for key, mean in outcome.mean.items():
        expected = torch.stack([state[key] for state in states.values()]).mean(0)
        assert (mean.dtype, mean.shape) == (first[key].dtype, first[key].shape)
        assert (mean - expected).abs().max() <= outcome.error_bound + 1e-6
        assert torch.equal(outcome.sum[key], mean * 4)
    missing, unexpected = models[names(4)[0]].load_state_dict(outcome.mean, strict=False)
    assert set(missing) <= {"1.num_batches_tracked"}
    assert unexpected == []


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_tensors_of_any_precision_keep_their_type(kind: str) -> None:
    torch = pytest.importorskip("torch", reason="training needs coterie[train]")
    tensor = torch.full((3,), 0.5, dtype=getattr(torch, kind), requires_grad=True)
    outcome = coterie.aggregate(dict.fromkeys(names(3), tensor), clip=1.0)
    assert outcome.mean.dtype == tensor.dtype
    assert not outcome.mean.requires_grad
    assert (outcome.mean.double() - 0.5).abs().max() < 0.01
    several = coterie.aggregate(dict.fromkeys(names(3), (tensor, tensor)), clip=1.0).mean
    assert isinstance(several, tuple)
    assert all(torch.is_tensor(mean) for mean in several)
    with pytest.raises(InputError, match="has no mean"):
        coterie.aggregate(dict.fromkeys(names(3), tensor.long()), clip=1.0)


def test_training_accepts_numbers_of_numpy(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="training needs coterie[train]")
    examples = [(torch.zeros(2), number % 2) for number in range(40)]
    numbers: dict[str, Any] = {"clients": np.int64(8), "cohort": np.int64(4), "privacy": np.int64(2)}
    result = coterie.train(
        torch.nn.Linear(2, 2),
        examples,
        **numbers,
        rounds=np.int64(1),  # type: ignore[arg-type]
        epsilon=np.float32(8.0),  # type: ignore[arg-type]
        settings={"seed": np.int64(3), "training.learning_rate": np.float64(0.1)},
        out=tmp_path / "run",
        progress=False,
    )
    assert len(result.records) == 1
