"""FedProx and SCAFFOLD against small implementations in plain torch, and what they do about drift."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.learning import BatchNormNet, blobs, dealt, same, small_problem

from coterie.arithmetic import FloatArray
from coterie.cohorts.circles import Indices
from coterie.errors import ConfigError, InputError
from coterie.training import flatten
from coterie.training.executors.processes import InProcess
from coterie.training.local import ArrayData, LocalSGD, LocalTask, Problem
from coterie.training.schedules import Curriculum, Inverse
from coterie.training.strategies import FedAvg, FedProx, Scaffold, plain_round, weighted_mean

SIZES = [20, 10, 25]
ALL = 60  # a batch of all examples, so that their order does not matter


def curriculum(work: LocalSGD | None = None) -> Curriculum:
    return Curriculum(dealt(SIZES), work or LocalSGD(0.1, 2, batch_size=6), 3, Inverse(0.1))


def play(problem: Problem, strategy: FedAvg, rounds: range, clients: list[str] | None = None) -> None:
    for number in rounds:
        plain_round(strategy, InProcess(problem), number, clients or strategy.clients)


# The reference: lists of float64 tensors and loops.


def gradient(problem: Problem, weights: list[torch.Tensor], indices: np.ndarray) -> list[torch.Tensor]:
    module = problem.instance([weight.numpy() for weight in weights])
    x, y = problem.data.batch(indices)
    found = torch.autograd.grad(torch.nn.functional.cross_entropy(module(x), y), list(module.parameters()))
    return [one.detach() for one in found]


def reference_fedprox(
    problem: Problem, parts: dict[str, Indices], mu: float, rate: float, steps: int
) -> list[torch.Tensor]:
    start = [torch.from_numpy(array) for array in flatten.read(problem.model)]
    ends = []
    for indices in parts.values():
        w = [one.clone() for one in start]
        for _ in range(steps):
            g = gradient(problem, w, indices)
            w = [a - rate * (b + mu * (a - c)) for a, b, c in zip(w, g, start, strict=True)]
        ends.append(w)
    return [sum(several) / len(ends) for several in zip(*ends, strict=True)]


class ReferenceScaffold:
    """Algorithm 1 with option II, full gradients and a fixed rate."""

    def __init__(self, problem: Problem, parts: dict[str, Indices], rate: float, steps: int) -> None:
        self.problem, self.parts, self.rate, self.steps = problem, parts, rate, steps
        self.x = [torch.from_numpy(array) for array in flatten.read(problem.model)]
        self.c = [torch.zeros_like(one) for one in self.x]
        self.own = {client: [torch.zeros_like(one) for one in self.x] for client in parts}

    def round(self, clients: list[str]) -> None:
        moves, changes = [], []
        for client in clients:
            y, own = [one.clone() for one in self.x], self.own[client]
            for _ in range(self.steps):
                g = gradient(self.problem, y, self.parts[client])
                y = [a - self.rate * (b - ci + c) for a, b, ci, c in zip(y, g, own, self.c, strict=True)]
            new = [
                ci - c + (x - a) / (self.steps * self.rate) for ci, c, x, a in zip(own, self.c, self.x, y, strict=True)
            ]
            moves.append([a - x for a, x in zip(y, self.x, strict=True)])
            changes.append([after - before for after, before in zip(new, own, strict=True)])
            self.own[client] = new
        self.x = [x + sum(several) / len(clients) for x, several in zip(self.x, zip(*moves, strict=True), strict=True)]
        self.c = [
            c + sum(several) / len(self.parts) for c, several in zip(self.c, zip(*changes, strict=True), strict=True)
        ]


def close(found: list[FloatArray], expected: list[torch.Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("mu", [0.01, 1.0])
def test_fedprox_against_a_loop(mu: float) -> None:
    problem = small_problem(dtype=torch.float64)
    proximal = FedProx(problem.model, Curriculum(dealt(SIZES), LocalSGD(0.2, 4, ALL), 3), mu)
    play(problem, proximal, range(1, 2))
    close(proximal.models()["global"], reference_fedprox(problem, dealt(SIZES), mu, 0.2, 4))


def test_scaffold_against_a_loop_with_some_of_the_clients_in_each_round() -> None:
    problem = small_problem(dtype=torch.float64)
    controlled = Scaffold(problem.model, Curriculum(dealt(SIZES), LocalSGD(0.2, 4, ALL), 3))
    reference = ReferenceScaffold(problem, dealt(SIZES), 0.2, 4)
    for number, clients in enumerate((["c0", "c1"], ["c1", "c2"], ["c0", "c1", "c2"], ["c2"], ["c0", "c2"]), 1):
        play(problem, controlled, range(number, number + 1), clients)
        reference.round(clients)
        close(controlled.models()["global"], reference.x)
        close(controlled.common_control, reference.c)
        for client, own in controlled.controls.items():
            close(own, reference.own[client])
        mean = [torch.stack(several).mean(0) for several in zip(*reference.own.values(), strict=True)]
        close(controlled.common_control, mean)


@settings(max_examples=5)
@given(st.integers(0, 100), st.booleans(), st.sampled_from([0.0, 0.5]))
def test_fedprox_without_mu_is_federated_averaging_bit_for_bit(seed: int, shuffle: bool, momentum: float) -> None:
    problem = small_problem()
    work = LocalSGD(0.1, 2, 6, momentum, 0.01, shuffle)
    given_work = Curriculum(dealt(SIZES), work, seed)
    states = []
    for strategy in (FedProx(problem.model, given_work, 0.0), FedAvg(problem.model, given_work)):
        play(problem, strategy, range(1, 3))
        states.append(list(strategy.state().values()))
    assert same(*states)
    assert isinstance(FedProx(problem.model, curriculum(), 0.0).task(1, "c0").work, LocalSGD)


def test_a_larger_mu_keeps_clients_nearer_to_the_common_model() -> None:
    problem = small_problem()
    lengths = []
    for mu in (0.0, 0.5, 5.0):
        strategy = FedProx(problem.model, curriculum(), mu)
        results = plain_round(strategy, InProcess(problem), 1, strategy.clients)
        lengths.append([sum(float(np.square(one).sum()) for one in result.update) for result in results])
    assert all(free > held > tied for free, held, tied in zip(*lengths, strict=True))


def test_with_one_step_and_equal_controls_scaffold_takes_the_step_of_federated_averaging() -> None:
    """With one local step and c_i = c the correction is 0, and c_i⁺ is the client's gradient at x (section 4)."""
    problem = small_problem(dtype=torch.float64)
    one_step = Curriculum(dealt(SIZES), LocalSGD(0.2, 1, ALL), 3)
    controlled, averaging = Scaffold(problem.model, one_step), FedAvg(problem.model, one_step)
    start = [torch.from_numpy(array) for array in flatten.read(problem.model)]
    play(problem, controlled, range(1, 2))
    play(problem, averaging, range(1, 2))
    assert same(controlled.models()["global"], averaging.models()["global"])
    for client, own in controlled.controls.items():
        close(own, gradient(problem, start, one_step.clients[client]))


def skewed() -> tuple[Problem, Curriculum]:
    """Three clients, each with one of three labels only, and many local steps."""
    data = blobs(90)
    by_label = np.argsort(data.y, kind="stable")
    model = torch.nn.Linear(5, 3).to(torch.float64)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    problem = Problem(model, ArrayData(data.x[by_label].astype(np.float64), data.y[by_label]))
    return problem, Curriculum(dealt([30, 30, 30]), LocalSGD(0.05, 40, 90), 1)


def test_with_skewed_labels_and_many_steps_scaffold_drifts_less_than_federated_averaging() -> None:
    """Drift is how far clients are from each other after their local steps; and the fixed point is the better one."""
    problem, many_steps = skewed()
    drift, loss = {}, {}
    for kind in (Scaffold, FedAvg):
        strategy = kind(problem.model, many_steps)
        play(problem, strategy, range(1, 6))
        results = plain_round(strategy, InProcess(problem), 6, strategy.clients)
        mean = weighted_mean([result.update for result in results], [1, 1, 1])
        drift[kind] = sum(
            float(np.square(one - middle).sum())
            for result in results
            for one, middle in zip(result.update, mean, strict=True)
        )
        x, y = problem.data.batch(np.arange(90))
        with torch.no_grad():
            loss[kind] = float(problem.losses(problem.instance(strategy.models()["global"])(x), y).mean())
    assert drift[Scaffold] < 0.2 * drift[FedAvg]
    assert loss[Scaffold] < loss[FedAvg]


def test_a_client_that_is_not_in_the_sum_keeps_its_control_variate() -> None:
    problem = small_problem(dtype=torch.float64)
    controlled, expected = (Scaffold(problem.model, curriculum()) for _ in range(2))
    play(problem, controlled, range(1, 2))
    play(problem, expected, range(1, 2))
    results = {client: controlled.task(2, client).work(problem, controlled.task(2, client), lambda: False)
               for client in controlled.clients}  # fmt: skip
    given = {client: controlled.contribution(result) for client, result in results.items()}
    controlled.retain(["c0", "c2"])  # c1 dropped out
    controlled.apply(2, weighted_mean([given["c0"], given["c2"]], [1, 1]))
    play(problem, expected, range(2, 3), ["c0", "c2"])
    assert same(list(controlled.state().values()), list(expected.state().values()))
    for client in controlled.clients:  # a round without a result
        controlled.contribution(results[client])
    controlled.retain([])
    assert same(list(controlled.state().values()), list(expected.state().values()))


def test_with_weights_the_common_control_stays_the_weighted_mean() -> None:
    problem = small_problem(dtype=torch.float64)
    controlled = Scaffold(problem.model, curriculum(), weighting="samples")
    play(problem, controlled, range(1, 2), ["c0", "c2"])
    play(problem, controlled, range(2, 4), ["c0", "c1"])
    sizes = dict(zip(controlled.clients, SIZES, strict=True))
    for place, common in enumerate(controlled.common_control):
        mean = sum(sizes[client] * own[place] for client, own in controlled.controls.items()) / sum(SIZES)
        np.testing.assert_allclose(common, mean, atol=1e-12)


@pytest.mark.parametrize("kind", [Scaffold, lambda model, given: FedProx(model, given, 0.3)])
def test_a_restored_state_continues_bit_for_bit(kind: type[Scaffold]) -> None:
    problem = small_problem()
    whole, begun, resumed = (kind(problem.model, curriculum()) for _ in range(3))
    play(problem, whole, range(1, 5), ["c0", "c1"])
    play(problem, begun, range(1, 3), ["c0", "c1"])
    resumed.restore({key: array.copy() for key, array in begun.state().items()})
    play(problem, resumed, range(3, 5), ["c0", "c1"])
    assert same(list(whole.state().values()), list(resumed.state().values()))
    assert not same(list(whole.state().values()), list(begun.state().values()))
    if isinstance(whole, Scaffold):
        assert set(whole.controls) == {"c0", "c1"}


def test_statistics_have_no_control_variate() -> None:
    model = BatchNormNet()
    problem = Problem(model, blobs())
    controlled = Scaffold(model, curriculum(LocalSGD(0.1, 2, batch_size=6, drop_last=True)))  # 25 is 4 x 6 + 1
    play(problem, controlled, range(1, 3))
    shapes = [array.shape for array in controlled.common_control]
    assert shapes == [tuple(parameter.shape) for parameter in flatten.parameters(model).values()]
    task = controlled.task(3, "c0")
    result = task.work(problem, task, lambda: False)
    statistics = len(shapes)
    assert same(controlled.contribution(result)[statistics:], result.update[statistics:])


@settings(max_examples=10)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(1, 3), st.integers(1, 12))
def test_a_contribution_is_one_multiple_of_the_update(sizes: list[int], epochs: int, batch: int) -> None:
    """Every entry has the same factor, and there is nothing else: T of the sums is T of the updates."""
    problem = small_problem(sum(sizes), torch.float64)
    controlled = Scaffold(problem.model, Curriculum(dealt(sizes), LocalSGD(0.1, epochs, batch), 3))
    for number in (1, 2):
        for client in controlled.clients:
            task: LocalTask = controlled.task(number, client)
            result = task.work(problem, task, lambda: False)
            given_away = controlled.contribution(result)
            assert [array.shape for array in given_away] == [array.shape for array in result.update]
            sent, update = (np.concatenate([array.ravel() for array in part]) for part in (given_away, result.update))
            factor = float(sent @ update / (update @ update))
            np.testing.assert_allclose(sent, factor * update, rtol=1e-12)
        play(problem, controlled, range(number, number + 1))


def test_settings_that_cannot_work_are_refused() -> None:
    problem = small_problem()
    with pytest.raises(ConfigError, match="momentum"):
        Scaffold(problem.model, replace(curriculum(), work=LocalSGD(0.1, momentum=0.5)))
    with pytest.raises(ConfigError, match="mu must be a number from 0 on"):
        FedProx(problem.model, curriculum(), -1.0)
    with pytest.raises(ConfigError, match="a learning rate of 0 show no gradient"):
        Scaffold(problem.model, replace(curriculum(), work=LocalSGD(0.0)))
    controlled = Scaffold(problem.model, curriculum())
    with pytest.raises(InputError, match="their number or shapes differ"):
        controlled.apply(1, flatten.read(problem.model)[1:])
