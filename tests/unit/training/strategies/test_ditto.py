"""Ditto: the common model is that of federated averaging, and own models lie between it and local training."""

import numpy as np
import pytest
import torch
from tests.support.learning import dealt, same, small_problem

from coterie.errors import ConfigError, InputError
from coterie.training import flatten
from coterie.training.executors.processes import InProcess
from coterie.training.local import LocalSGD, Problem
from coterie.training.schedules import Curriculum, Inverse
from coterie.training.strategies import Ditto, FedAvg, LocalOnly, plain_round

SIZES = [20, 10, 25]


def curriculum(epochs: int = 1) -> Curriculum:
    return Curriculum(dealt(SIZES), LocalSGD(0.1, epochs, batch_size=6), 3, Inverse(0.1))


def play(problem: Problem, ditto: Ditto, rounds: range) -> None:
    trainer = InProcess(problem, together=True)
    for number in rounds:
        tasks = [ditto.personal_task(number, client) for client in ditto.clients]
        plain_round(ditto, trainer, number, ditto.clients)
        trainer.start(tasks)
        for task in tasks:
            ditto.keep(trainer.result(task.client))


def distance(one: list[np.ndarray], other: list[np.ndarray]) -> float:
    return float(sum(np.square(a - b).sum() for a, b in zip(one, other, strict=True)) ** 0.5)


def test_the_common_model_of_ditto_is_that_of_federated_averaging() -> None:
    problem = small_problem()
    ditto, averaging = Ditto(problem.model, curriculum(), 0.3), FedAvg(problem.model, curriculum())
    play(problem, ditto, range(1, 4))
    for number in range(1, 4):
        plain_round(averaging, InProcess(problem, together=True), number, averaging.clients)
    assert same(ditto.models()["global"], averaging.models()["global"])


def test_without_a_penalty_clients_train_alone_and_with_a_large_one_they_follow() -> None:
    problem = small_problem(dtype=torch.float64)
    alone = LocalOnly(problem.model, curriculum())
    for number in range(1, 4):
        plain_round(alone, InProcess(problem), number, alone.clients)
    apart = []
    for penalty in (0.0, 0.5, 5.0):
        ditto = Ditto(problem.model, curriculum(), penalty)
        play(problem, ditto, range(1, 4))
        apart.append([distance(ditto.models()[name], ditto.models()["global"]) for name in ditto.clients])
        if not penalty:
            assert all(same(ditto.models()[name], alone.models()[name]) for name in ditto.clients)
    assert all(free > held > tied for free, held, tied in zip(*apart, strict=True))


def test_one_step_against_its_formula() -> None:
    problem = small_problem(dtype=torch.float64)
    steps = Curriculum(dealt(SIZES), LocalSGD(0.1, batch_size=60), 3)
    ditto = Ditto(problem.model, steps, 0.7)
    play(problem, ditto, range(1, 3))
    client, before, common = "c0", ditto.models()["c0"], ditto.models()["global"]
    module = problem.instance(before)
    x, y = problem.data.batch(steps.clients[client])
    gradients = torch.autograd.grad(problem.losses(module(x), y).mean(), list(flatten.parameters(module).values()))
    result = ditto.personal_task(3, client).work(problem, ditto.personal_task(3, client), lambda: False)
    for update, gradient, v, w in zip(result.update, gradients, before, common, strict=True):
        np.testing.assert_allclose(update, -0.1 * (gradient.numpy() + 0.7 * (v - w)), atol=1e-14)


def test_a_restored_state_continues_bit_for_bit() -> None:
    problem = small_problem()
    whole, begun, resumed = (Ditto(problem.model, curriculum(), 0.3, momentum=0.5) for _ in range(3))
    play(problem, whole, range(1, 5))
    play(problem, begun, range(1, 3))
    resumed.restore({key: array.copy() for key, array in begun.state().items()})
    play(problem, resumed, range(3, 5))
    assert same(list(whole.state().values()), list(resumed.state().values()))
    assert not same(list(whole.state().values()), list(begun.state().values()))


def test_only_models_that_have_trained_are_stored() -> None:
    """Of many clients few have trained; the others' models are as they started."""
    problem, many = small_problem(), Curriculum(dealt([1] * 40), LocalSGD(0.1, batch_size=6), 3)
    ditto, other = Ditto(problem.model, many, 0.3), Ditto(small_problem().model, many, 0.3)
    start = {f"start.{place}" for place in range(len(flatten.read(problem.model)))}
    few = ditto.state()
    assert start <= few.keys()
    trainer = InProcess(problem, together=True)
    trainer.start([ditto.personal_task(1, "c7")])
    ditto.keep(trainer.result("c7"))
    assert len(ditto.state()) == len(few) + len(start)
    other.restore(ditto.state())
    assert other.models().keys() == ditto.models().keys()
    assert all(same(other.models()[name], model) for name, model in ditto.models().items())


def test_states_of_earlier_versions_with_the_models_of_all_clients_are_restored() -> None:
    problem = small_problem()
    ditto, other = (Ditto(problem.model, curriculum(), 0.3) for _ in range(2))
    play(problem, ditto, range(1, 2))
    old = {name: array for name, array in ditto.state().items() if not name.startswith("start.")}
    other.restore(old)
    assert all(same(other.models()[name], model) for name, model in ditto.models().items())
    with pytest.raises(InputError, match="not those of the model"):
        other.restore({name: array for name, array in old.items() if not name.startswith("own.c1.")})


def test_no_client_may_have_the_name_of_the_common_model() -> None:
    problem = small_problem()
    clients = {"global": np.arange(5), "other": np.arange(5, 10)}
    with pytest.raises(ConfigError, match="cannot be called global"):
        Ditto(problem.model, Curriculum(clients, LocalSGD(0.1), 0), 0.1)
