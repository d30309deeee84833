"""A session of a run is bound to the work of its clients: a client that is given other work does not take part."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

pytest.importorskip("torch", reason="training needs coterie[train]")

from coterie.cohorts.ledger import Outcome
from coterie.crypto.context import bind
from coterie.errors import LocalProtocolError
from coterie.rounds import Coordinator
from coterie.runs.engine.run import RunResult, TrainingRun
from coterie.runs.engine.updates import LocalUpdates, canonical
from coterie.runs.settings.toml import load_config
from coterie.training.local import ControlledSGD, LocalResult, LocalSGD, LocalTask, Problem, ProximalSGD, Stop, Work
from coterie.training.strategies import FedAvg

SETTINGS = (
    *("rounds=2", "clients.count=6", "cohort.size=6", "cohort.policy=multi-round", "cohort.privacy=2"),
    *("model.name=softmax-regression", "training.workers=0", "training.executor=processes", "aggregation.threads=1"),
    *("availability.kind=equal", "availability.dropout=0.0", "cohort.minimum=2"),
)


def play(folder: Path, *more: str) -> RunResult:
    return TrainingRun.begin(folder, load_config(None, [*SETTINGS, *more])).play()


def another_model(task: LocalTask) -> LocalTask:
    changed = [array.copy() for array in task.state]
    changed[0][0, 0] = np.nextafter(changed[0][0, 0], 1)
    return replace(task, state=changed)


def another_rate(task: LocalTask) -> LocalTask:
    """With a learning rate of zero an update is zero, whatever the model."""
    assert isinstance(task.work, LocalSGD)
    return replace(task, work=replace(task.work, learning_rate=0.0))


def another_seed(task: LocalTask) -> LocalTask:
    return replace(task, seed=task.seed + 1)


def another_round(task: LocalTask) -> LocalTask:
    return replace(task, round=task.round + 1)


@pytest.mark.parametrize("other", [another_model, another_rate, another_seed, another_round])
@pytest.mark.parametrize("threat", ["honest-but-curious", "active-server"])
def test_a_client_with_another_task_leaves_the_round(
    other: type, threat: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = FedAvg.task
    names: list[str] = []

    def task(self: FedAvg, number: int, client: str) -> LocalTask:
        names.append(client)
        given = honest(self, number, client)
        return other(given) if number == 2 and client != self.clients[0] else given

    monkeypatch.setattr(FedAvg, "task", task)
    first, second = play(tmp_path / "run", f"aggregation.threat={threat}").records
    assert first.outcome is Outcome.COMPLETED
    assert set(first.aggregated) == set(names)
    assert second.outcome is Outcome.ABORTED_BEFORE_REVEAL
    assert second.aggregated == ()
    assert set(second.dropped) == set(names) - {names[0]}


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The contents that the sessions of a run are bound to, in the order in which they are opened."""
    found: list[bytes] = []
    opening = Coordinator.open

    def recorded(self: Coordinator[object], *arguments: object, content: bytes = b"", resuming: bool = False) -> object:
        found.append(content)
        return opening(self, *arguments, content=content, resuming=resuming)  # type: ignore[arg-type]

    monkeypatch.setattr(Coordinator, "open", recorded)
    return found


def test_the_session_of_every_round_is_bound_to_its_own_model(tmp_path: Path, contents: list[bytes]) -> None:
    assert all(record.outcome is Outcome.COMPLETED for record in play(tmp_path / "run").records)
    assert len(set(contents)) == len(contents) == 2
    assert all(len(content) == 32 for content in contents)


def test_sessions_of_confined_descent_have_no_content(tmp_path: Path, contents: list[bytes]) -> None:
    """Each participant trains its own model, so there is nothing that all of them were given."""
    result = play(tmp_path / "run", "training.algorithm=confined")
    assert all(record.outcome is Outcome.COMPLETED for record in result.records)
    assert contents == [b"", b""]


class Unequal:
    """A strategy that gives each client other work and claims a common model; also a trainer that trains nobody."""

    common_model = True

    def __init__(self, **works: Work) -> None:
        self.works = works

    def task(self, number: int, client: str) -> LocalTask:
        return LocalTask(client, number, 0, [], np.zeros(1, np.int64), self.works[client])

    def start(self, _: list[LocalTask]) -> None:
        pass


def given_contents(**works: Work) -> dict[str, bytes]:
    """Return the digest of what each client got, by name."""
    unequal = Unequal(**works)
    updates = LocalUpdates(unequal, unequal)  # type: ignore[arg-type]
    updates.start(1, list(works))
    return updates.given


@dataclass(frozen=True, eq=False)
class Corrected:
    """Work that has an array, and a field that its ``repr`` omits."""

    correction: object
    scale: float = field(default=1.0, repr=False)

    def __call__(self, problem: Problem, task: LocalTask, stop: Stop) -> LocalResult:
        raise NotImplementedError


class Namesake:
    @dataclass(frozen=True, eq=False)
    class Corrected(Corrected):
        pass


Namesake.Corrected.__qualname__ = "Corrected"
Namesake.Corrected.__module__ = "elsewhere"
LONG = np.zeros(5000)
CENTRE = [np.zeros((2, 3), np.float32), np.zeros(3, np.float32)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # With learning_rate * penalty = 1, a step ends near the centre. A server could send everybody but its victim
        # to a dead model, whose gradients are zero.
        (ProximalSGD(LocalSGD(0.1), 10.0, CENTRE), ProximalSGD(LocalSGD(0.1), 10.0, [array - 9 for array in CENTRE])),
        (Corrected(LONG), Corrected(np.where(np.arange(5000) == 2500, 7, LONG))),
        (Corrected(np.array([0.123456789])), Corrected(np.array([0.1234567891]))),
        (Corrected(CENTRE[0]), Corrected(CENTRE[0].reshape(3, 2))),
        (Corrected([CENTRE, 1]), Corrected([*CENTRE, 1])),
        (Corrected(None), Corrected(None, scale=2.0)),
        (Corrected(None), Namesake.Corrected(None)),
        (Corrected("1"), Corrected(1)),
    ],
)
def test_different_work_has_different_digests(one: Work, other: Work) -> None:
    given = given_contents(one=one, again=one, other=other)
    assert given["one"] == given["again"] != given["other"]


def test_a_new_field_with_its_default_value_changes_no_digest() -> None:
    """Otherwise a round that an earlier version began could not be repeated after a crash."""
    work = LocalSGD(0.25, 2, 8, 0.5, 0.125, True)
    earlier = bind(
        "coterie.training.local.LocalSGD",
        *(bind(type(value).__module__ + "." + type(value).__qualname__, repr(value).encode())
          for value in (0.25, 2, 8, 0.5, 0.125, True)),
    )  # fmt: skip
    assert canonical(work) == earlier != canonical(replace(work, drop_last=True))


def test_private_state_of_a_client_is_in_its_recipe_and_not_in_the_content_of_its_session() -> None:
    common, own, other = ([np.full(3, value, np.float32)] for value in (1, 2, 3))
    one, two = (ControlledSGD(LocalSGD(0.1), common, private) for private in (own, other))
    given = given_contents(one=one, two=two, three=ControlledSGD(LocalSGD(0.1), other, own))
    assert given["one"] == given["two"] != given["three"]
    assert canonical(one) != canonical(two)


@given(st.lists(arrays.arrays(np.float32, arrays.array_shapes(min_side=0, max_dims=2, max_side=2)), max_size=3))
def test_equal_work_has_the_same_digest(centre: list[np.ndarray]) -> None:
    copied = [array.copy() for array in centre]
    one, other = (ProximalSGD(LocalSGD(0.1), 1.0, values) for values in (centre, copied))
    given = given_contents(one=one, other=other)
    assert given["one"] == given["other"]


def test_work_with_values_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match=r"numbers, texts and arrays, which builtins\.object is not"):
        given_contents(one=Corrected(object()))


def test_a_model_changed_in_place_has_another_digest() -> None:
    state = [np.zeros(3, np.float32)]

    class InPlace:
        common_model = True
        clients = ("client-0",)

        def task(self, number: int, client: str) -> LocalTask:
            return LocalTask(client, number, 0, state, np.arange(2), LocalSGD(0.1))

    updates = LocalUpdates(InPlace(), None)  # type: ignore[arg-type]
    before = updates.content(1)
    assert updates.content(1) == before
    state[0][0] = 1
    assert updates.content(1) != before
