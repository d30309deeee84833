"""Rivals: they play our cohorts in turns with us, must arrive at our model, and are reported beside our rounds."""

import json
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.support.commands import refusal_of
from tests.support.records import record_of, words_of

from coterie.bench.rivals import compare as rivals
from coterie.bench.rivals import flower_training as rival_flower
from coterie.bench.rivals import pfl_training as rival_pfl
from coterie.bench.rivals.compare import SYSTEMS, RivalCosts, System, check_model, measure_rivals
from coterie.bench.rivals.process import Orders, Serve
from coterie.bench.rivals.work import RivalTasks
from coterie.bench.training import RoundCost, Scenario, TrainingCosts
from coterie.cohorts.ledger import Ledger
from coterie.errors import ConfigError, RoundAborted
from coterie.training import flatten
from coterie.training.local import one_thread

TINY = Scenario("lenet", (1, 16, 16), samples=6, batch_size=4, clients=6, cohort=4, privacy=2)


# Parts of rivals, which run in processes of their own.


def honest(scenario: Scenario, rounds: int, seen: Path, orders: Orders) -> None:
    """Average what the clients learn, by itself and round by round."""
    place = RivalTasks(scenario, rounds)
    model = place.model
    while True:
        order = orders.next()
        with seen.open("a") as file:
            file.write(json.dumps(order) + "\n")
        tasks = [place.task(order.number, client, model) for client in order.clients]
        with one_thread():
            updates = [task.work(place.problem, task, lambda: False).update for task in tasks]
        model = flatten.moved(model, [np.mean(arrays, 0) for arrays in zip(*updates, strict=True)])
        orders.done(lambda: model)  # noqa: B023  (called at once)


def idle(scenario: Scenario, orders: Orders) -> None:
    """Do nothing at all, quickly."""
    while True:
        orders.next()
        orders.done(lambda: RivalTasks(scenario, 1).model)


def system(title: str, *parts: Serve) -> System:
    return System(title, "1.0", ("numpy",), "pip install numpy", lambda _scenario, _rounds, _workers: parts)


@pytest.fixture
def contestants(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let somebody who works as we do run as Flower, and somebody who does not work at all as pfl."""
    monkeypatch.setattr(System, "require", lambda _self: None)
    seen = tmp_path / "seen"
    monkeypatch.setitem(SYSTEMS, "flower", system("Honest", partial(honest, TINY, 3, seen)))
    monkeypatch.setitem(SYSTEMS, "pfl", system("Idle", partial(idle, TINY)))
    return seen


def cost(seconds: float) -> RoundCost:
    return RoundCost(seconds, seconds, 0.0, seconds, 0, 0)


def test_a_rival_plays_our_cohorts_and_arrives_at_our_model(contestants: Path, tmp_path: Path) -> None:
    watched: list[int] = []
    costs, found = measure_rivals(TINY, 2, 0, tmp_path, ["flower", "flower"], watched.append)
    assert watched == [1, 2, 3]
    assert list(found) == ["flower"]
    assert len(found["flower"].seconds) == len(costs.secure) == 2  # the first round warms up
    assert min(found["flower"].seconds) > 0
    assert found["flower"].error < 1e-6
    with Ledger.open(tmp_path / "secure" / "ledger.sqlite") as ledger:
        ours = [[number, list(clients)] for number, clients in ledger.rows()]
    assert [json.loads(line) for line in contestants.read_text().splitlines()] == ours


@pytest.mark.usefixtures("contestants")
def test_a_rival_with_another_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RoundAborted, match="model of Idle differs from ours by"):
        measure_rivals(TINY, 1, 0, tmp_path, ["pfl"])


def test_without_rivals_only_our_rounds_are_played(tmp_path: Path) -> None:
    costs, found = measure_rivals(TINY, 1, 0, tmp_path, [])
    assert len(costs.plain) == 1
    assert found == {}


def test_clients_work_as_in_our_rounds() -> None:
    place = RivalTasks(TINY, 3)
    work, examples = place.work(2, "client-5")
    task = place.task(2, "client-5", [array + 1 for array in place.model])
    assert (task.round, task.client) == (2, "client-5")
    assert np.array_equal(np.sort(examples), np.sort(task.indices))
    assert np.array_equal(examples[: work.batch_size], next(iter(work.batches(task))))
    assert np.array_equal(task.state[0], place.model[0] + 1)
    rates = [place.work(number, "client-5")[0].learning_rate for number in (1, 2, 3)]
    assert all(before > after > 0 for before, after in pairwise(rates))


def test_models_may_differ_by_rounding_and_no_more() -> None:
    ours = [np.full(3, 0.5, np.float32), np.zeros(2, np.float32)]
    near = [np.nextafter(ours[0], 1), ours[1]]
    assert check_model("Other", near, ours, 4) == 2.0**-24
    for step in 1e-5, float("nan"):
        with pytest.raises(RoundAborted, match="model of Other differs"):
            check_model("Other", [ours[0] + np.float32(step), ours[1]], ours, 4)


def test_the_slowdown_is_the_median_over_rounds() -> None:
    costs = RivalCosts(SYSTEMS["pfl"], (2.0, 3.0, 40.0), 0.0)
    assert costs.slowdown([cost(1.0), cost(2.0), cost(10.0)]) == 2.0
    assert costs.rounds_per_minute == 20


@pytest.mark.parametrize(
    ("name", "versions", "message"),
    [
        ("flower", {}, r"flwr 1\.41\.0, but flwr is not installed, ray is not .*pip install .*\[simulation\]'"),
        ("flower", {"flwr": "1.41.0"}, r"but ray is not installed: "),
        ("flower", {"flwr": "1.40.0", "ray": "2.55.1"}, r"but flwr is 1\.40\.0: "),
        ("pfl", {}, r"pfl 0\.6\.0, but pfl is not installed.*: pip install --no-deps pfl==0\.6\.0"),
    ],
)
def test_missing_packages_are_named(
    name: str, versions: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def installed(package: str) -> str:
        if package not in versions:
            raise PackageNotFoundError(package)
        return versions[package]

    monkeypatch.setattr(rivals, "version", installed)
    with pytest.raises(ConfigError, match=message):
        measure_rivals(TINY, 1, 0, tmp_path, [name])


def test_installed_versions_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "version", {"flwr": "1.41.0", "ray": "2.55.1"}.__getitem__)
    SYSTEMS["flower"].require()


def test_each_rival_gets_as_many_processes_as_we_have() -> None:
    (flower,) = rival_flower.parts(TINY, 3, 2)
    assert isinstance(flower, partial)
    assert flower.args == (TINY, 3, 2)
    ranks = [part.args for part in rival_pfl.parts(TINY, 3, 2) if isinstance(part, partial)]
    assert [rank for *_, rank in ranks] == [0, 1]
    assert ranks[0][2] == ranks[1][2]
    assert ranks[0][2].count(":") == 2
    (alone,) = rival_pfl.parts(TINY, 3, 0)
    assert isinstance(alone, partial)
    assert alone.args == (TINY, 3, "", 0)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    costs = TrainingCosts(7, 0, (cost(2.0), cost(2.0)), (cost(1.0), cost(1.0)), 0.01)
    found = {"flower": RivalCosts(SYSTEMS["flower"], (3.0, 5.0), 1e-9)}

    def measure(
        _scenario: Scenario, _rounds: int, _workers: int, _folder: Path, names: list[str], *_: object
    ) -> object:
        return costs, {name: found[name] for name in names}

    monkeypatch.setattr(rivals, "measure_rivals", measure)
    monkeypatch.chdir(tmp_path)


COMMAND = ("bench", "training", "--rounds", "2", "--against", "flower")


@pytest.mark.usefixtures("measured")
def test_the_json_has_a_rival_and_how_much_slower_it_is() -> None:
    assert record_of(*COMMAND)["rivals"] == {
        "flower": {
            "release": "1.41.0",
            "rounds_per_minute": 15.0,
            "seconds": [3.0, 5.0],
            "model_deviation": 1e-9,
            "slowdown": {"secure": 2.0, "plain": 4.0},
        }
    }


@pytest.mark.usefixtures("measured")
def test_the_table_shows_the_rival_beside_our_rounds() -> None:
    shown = words_of(*COMMAND)
    assert "Flower 1.41.0" in shown
    assert "4.00x the time of our plain one, 2.00x that of our secure one" in shown


def test_a_missing_rival_ends_in_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(SYSTEMS, "pfl", replace(SYSTEMS["pfl"], packages=("no-such-package",)))
    said = refusal_of("bench", "training", "--against", "pfl", silent=True)
    assert "no-such-package is not installed" in said
    assert said.count("\n") == 1
