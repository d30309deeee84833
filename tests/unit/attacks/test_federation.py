"""The federation of attacks: dealing, rounds of the library's strategies, and what an adversary sees of them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.attacks.attack import within
from coterie.attacks.federation import (
    Cohort,
    Federation,
    Observations,
    flat,
    make_selections,
    make_trainer,
    play_cohorts,
    play_round,
    public_model,
    shaped,
    train_clients,
)
from coterie.confined import ConfinedDescent, ConstantStep, NoCheck, Offsets, Spread
from coterie.errors import ConfigError
from coterie.training.executors.processes import InProcess
from coterie.training.local import ArrayData, LocalSGD, Problem
from coterie.training.models import build
from coterie.training.schedules import Curriculum
from coterie.training.strategies import Confined, Ditto, FedAvg, Strategy, plain_round
from coterie.training.streams import stream

WORK = LocalSGD(0.1, batch_size=20)


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation.deal("digits", "softmax-regression", 6, seed=1, examples=30)


def make_strategy(name: str, federation: Federation) -> Strategy:
    if name == "confined":
        offsets = Offsets(federation.start, lambda client: stream(1, "offset", client), Spread(0.1))
        descent = ConfinedDescent(offsets, list(federation.holdings), ConstantStep(0.5), NoCheck())
        return Confined(federation.problem, federation.holdings, descent, clip=1.0, seed=1)
    curriculum = Curriculum(federation.holdings, WORK, federation.seed)
    model = federation.problem.model
    return Ditto(model, curriculum, 0.3, momentum=0.5) if name == "ditto" else FedAvg(model, curriculum, momentum=0.5)


class TestDealing:
    def test_updates_have_the_right_shape_and_are_reproducible(self, federation: Federation) -> None:
        assert [part.size for part in federation.parts] == [30] * 6
        first, again = (federation.updates(federation.start, 1, WORK) for _ in range(2))
        assert np.array_equal(first, again)
        assert not np.array_equal(first[2], first[3])
        assert first.shape == (6, sum(array.size for array in federation.start))
        assert np.array_equal(federation.updates(federation.start, 1, WORK, [4, 2]), first[[4, 2]])

    def test_training_learns(self) -> None:
        federation = Federation.deal("digits", "softmax-regression", 6, seed=1)
        *_, last = federation.play(federation.fedavg(WORK), range(1, 6))
        before, after = federation.score(federation.start).accuracy, federation.score(last.after).accuracy
        assert before is not None
        assert after is not None
        assert after > 0.7 > before

    def test_dealing_by_label_gives_each_client_few_labels(self) -> None:
        federation = Federation.deal("digits", "softmax-regression", 10, seed=0, by_label=True)
        kinds = [np.unique(federation.dataset.train_y[part]).size for part in federation.parts]
        assert max(kinds) <= 3

    @pytest.mark.parametrize(("data", "examples", "said"), [("energy", 0, "no labels"), ("digits", 10_000, "examples")])
    def test_impossible_federations_are_refused(self, data: str, examples: int, said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            Federation.deal(data, "softmax-regression", 6, 0, examples=examples)


class TestRounds:
    @pytest.mark.parametrize("name", ["fedavg", "ditto", "confined"])
    def test_a_round_is_that_of_the_strategy(self, federation: Federation, name: str) -> None:
        """Models are equal bit for bit to those of the strategy alone, and the mean is that of the contributions."""
        ours, theirs = (make_strategy(name, federation) for _ in range(2))
        clients, trainer = ["client-0", "client-3", "client-4"], InProcess(federation.problem)
        for number in range(1, 4):
            before = flat(public_model(ours))
            played = play_round(ours, InProcess(federation.problem), number, clients)
            personal = [theirs.personal_task(number, client) for client in clients] if isinstance(theirs, Ditto) else []
            results = plain_round(theirs, trainer, number, clients)
            for task in personal:
                theirs.keep(task.work(federation.problem, task, lambda: False))  # type: ignore[attr-defined]
            assert played.members.tolist() == [0, 3, 4]
            assert np.array_equal(flat(played.before), before)
            assert np.array_equal(flat(played.after), flat(public_model(theirs)))
            assert np.array_equal(played.mean, played.updates.mean(0))
            assert np.array_equal(played.updates[1], flat(theirs.contribution(results[1]) or []))
        for client, model in theirs.models().items():
            assert np.array_equal(flat(ours.models()[client]), flat(model)), client

    def test_federations_played_together_are_independent(self, federation: Federation) -> None:
        def run(number: int) -> FedAvg:
            holdings = {f"run-{number}-client-{place}": part for place, part in enumerate(federation.parts[:3])}
            return FedAvg(federation.problem.model, Curriculum(holdings, WORK, number))

        both, alone = [run(1), run(2)], [run(1), run(2)]
        shares: list[float] = []
        trainer = make_trainer(federation.problem)
        for number in (1, 2):
            at_once = play_cohorts([Cohort(one, one.clients) for one in both], trainer, number, shares.append)
            for played, strategy in zip(at_once, alone, strict=True):
                expected = play_round(strategy, make_trainer(federation.problem), number, strategy.clients)
                assert np.allclose(played.updates, expected.updates, atol=1e-7)
                assert np.allclose(flat(played.after), flat(expected.after), atol=1e-7)
        assert shares == [1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1.0] * 2

    def test_the_server_steps_along_what_is_released(self, federation: Federation) -> None:
        strategy = federation.fedavg(WORK)
        ones = Cohort(strategy, strategy.clients[:2], lambda updates: np.ones(updates.shape[1]))
        (played,) = play_cohorts([ones], make_trainer(federation.problem), 1)
        assert np.allclose(flat(played.after) - flat(played.before), 1, atol=1e-6)

    def test_all_clients_train_from_the_given_model(self, federation: Federation) -> None:
        given = [3 * array for array in federation.start]
        together, apart = (
            train_clients(federation.problem, federation.holdings, given, 3, WORK, federation.seed, together=how)
            for how in (True, False)
        )
        assert np.allclose(together, apart, atol=1e-6)
        assert np.array_equal(apart, federation.updates(given, 3, WORK))
        assert not np.allclose(apart, federation.updates(federation.start, 3, WORK), atol=1e-3)

    @pytest.mark.parametrize(("model", "together"), [("mlp", True), ("lenet", False)])
    def test_convolutions_are_trained_one_by_one(self, model: str, together: bool) -> None:
        data = ArrayData(np.zeros((4, 1, 28, 28), np.float32), np.zeros(4, np.int64))
        trainer = make_trainer(Problem(build(model, (1, 28, 28), 10, 0), data))
        assert isinstance(trainer, InProcess)
        assert trainer._together is together


class TestObservations:
    def test_observations_have_the_participants_and_means_of_each_round(self, federation: Federation) -> None:
        (selection,) = make_selections(["random"], [1], 6, 3, 1, naive=False)
        rounds = list(federation.play(federation.fedavg(WORK), range(1, 5), selection))
        seen = Observations.of(rounds, 7)
        assert seen.participation.shape == (4, 7)
        assert seen.participation.sum(1).tolist() == [3] * 4
        assert not seen.seen[6]
        for number, played in enumerate(rounds):
            assert np.flatnonzero(seen.participation[number]).tolist() == sorted(played.members.tolist())
            assert np.array_equal(seen.means[number], played.mean)
        first = rounds[0].members[0]
        sent = [one.updates[one.members.tolist().index(first)] for one in rounds if first in one.members]
        assert np.allclose(seen.truth[first], np.mean(sent, axis=0))

    @pytest.mark.parametrize("factor", [0.0, np.inf, np.nan])
    def test_a_window_with_no_updates_but_zeros_or_with_infinite_ones_is_refused(
        self, federation: Federation, factor: float
    ) -> None:
        (played,) = federation.play(federation.fedavg(WORK), [1])
        with pytest.raises(ConfigError, match="learn nothing, or diverge"):
            Observations.of([replace(played, updates=factor * np.ones_like(played.updates))], 6)

    def test_a_window_in_which_everybody_drops_out_is_refused(self, federation: Federation) -> None:
        (selection,) = make_selections(["random"], [1], 6, 3, 1, naive=False)
        with pytest.raises(ConfigError, match="fewer dropouts or more rounds"):
            Observations.of(federation.play(federation.fedavg(WORK), range(1, 4), selection, dropouts=1.0), 6)


@settings(max_examples=20)
@given(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=4), st.integers(0, 99))
def test_arrays_survive_flattening(shapes: list[list[int]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    row = flat(arrays)
    assert row.size == sum(array.size for array in arrays)
    assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(arrays, shaped(row, arrays), strict=True))


def test_the_progress_of_a_part_is_scaled() -> None:
    shares: list[float] = []
    for share in (0.0, 0.5, 1.0):
        within(shares.append, 0.25, 0.5)(share)
    assert shares == [0.25, 0.5, 0.75]
