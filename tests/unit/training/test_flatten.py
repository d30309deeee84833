import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.learning import BatchNormNet, same
from torch import nn

from coterie.arithmetic import FloatArray, Layout
from coterie.errors import InputError
from coterie.training import flatten
from coterie.training.models import MODELS, build

SHAPES = {"lstm": (7, 2), "vgg11": (3, 32, 32), "lenet": (1, 28, 28), "mnist-cnn-small": (1, 28, 28)}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_restored_from_its_arrays(name: str) -> None:
    shape = SHAPES.get(name, (1, 8, 8))
    model, other = build(name, shape, 4, seed=1), build(name, shape, 4, seed=2)
    arrays = flatten.read(model)
    assert len(arrays) == len(list(model.parameters()))
    assert all(array.flags.c_contiguous for array in arrays)  # however the model keeps them
    assert Layout.of(arrays).size == sum(parameter.numel() for parameter in model.parameters())
    flatten.write(other, arrays)
    assert same(flatten.read(other), arrays)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_parameters_come_first_then_statistics_and_the_rest_stays() -> None:
    net = BatchNormNet()
    assert list(flatten.parameters(net)) == ["first.weight", "first.bias", "norm.weight", "norm.bias", "last.weight"]
    assert list(flatten.statistics(net)) == ["norm.running_mean", "norm.running_var"]
    frozen = net.last.bias.clone()
    arrays = [np.full_like(array, number) for number, array in enumerate(flatten.read(net))]
    flatten.write(net, arrays)
    assert same(flatten.read(net), arrays)
    assert flatten.statistics(net)["norm.running_var"].tolist() == [6] * 4
    assert net.norm.num_batches_tracked == torch.tensor(0)
    assert torch.equal(net.last.bias, frozen)


def test_buffers_outside_the_state_stay() -> None:
    net = nn.Linear(2, 2)
    net.register_buffer("scratch", torch.ones(3), persistent=False)
    net.register_buffer("kept", torch.ones(2))
    assert list(flatten.statistics(net)) == ["kept"]


def test_a_tied_parameter_is_stored_once() -> None:
    one, other = nn.Linear(3, 3), nn.Linear(3, 3)
    other.weight = one.weight
    net = nn.Sequential(one, other)
    arrays = flatten.read(net)
    assert len(arrays) == 3
    flatten.write(net, [np.zeros_like(array) for array in arrays])
    assert other.weight.abs().sum() == 0


def test_arrays_are_copies() -> None:
    net = nn.Linear(2, 2)
    arrays = flatten.read(net)
    arrays[0] += 1
    assert not np.array_equal(flatten.read(net)[0], arrays[0])
    flatten.write(net, arrays)
    arrays[0] += 1
    assert not np.array_equal(flatten.read(net)[0], arrays[0])


def test_a_negative_variance_becomes_zero_and_nothing_else_changes() -> None:
    net = BatchNormNet()
    arrays = flatten.read(net)
    arrays[-2][:], arrays[-1][:] = -1, [-1e-3, 2, 0, 3]
    flatten.write(net, arrays)
    assert flatten.statistics(net)["norm.running_mean"].tolist() == [-1] * 4
    assert flatten.statistics(net)["norm.running_var"].tolist() == [0, 2, 0, 3]
    assert torch.isfinite(net.eval()(torch.ones(2, 5))).all()
    flatten.write(plain := nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False)), flatten.read(plain))


def test_arrays_may_be_read_only_scalar_or_strided() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))
            self.matrix = nn.Parameter(torch.zeros(2, 3))

    net = Scaled()
    scale, matrix = np.array(5, np.float32), np.arange(6, dtype=np.float32).reshape(3, 2).T
    scale.flags.writeable = False
    flatten.write(net, [scale, matrix])
    arrays = flatten.read(net)
    assert arrays[0].shape == ()
    assert np.array_equal(arrays[1], matrix)
    assert [array.shape for array in flatten.moved(arrays, arrays)] == [(), (2, 3)]
    assert all(isinstance(array, np.ndarray) for array in flatten.difference(arrays, arrays))


def test_wrong_arrays_are_refused() -> None:
    net = nn.Linear(2, 3)
    weight, bias = flatten.read(net)
    with pytest.raises(InputError, match="2 arrays, not 1"):
        flatten.write(net, [weight])
    with pytest.raises(InputError, match=r"weight has shape \(3, 2\), the array for it \(3,\)"):
        flatten.write(net, [bias, weight])


@given(st.floats(-4, 4), st.sampled_from([np.float16, np.float32, np.float64]))
def test_moving_keeps_types_and_makes_new_arrays(scale: float, dtype: type) -> None:
    state: list[FloatArray] = [np.arange(3, dtype=dtype)]
    step: list[FloatArray] = [np.full(3, 0.5)]
    result = flatten.moved(state, step, scale)
    assert result[0].dtype == dtype
    assert np.array_equal(result[0], (np.arange(3) + 0.5 * scale).astype(dtype))
    assert np.array_equal(state[0], np.arange(3))
