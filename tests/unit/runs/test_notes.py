"""Notes on a run: expected numbers are right, and clipping is reported when it happens, a limited number of times."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="training needs coterie[train]")

from coterie.cohorts.circles import circle_sizes, random_circles
from coterie.cohorts.ledger import Outcome
from coterie.cohorts.policies import MultiRound, simulate
from coterie.runs.engine.build import build_run
from coterie.runs.engine.federation import find_federation, make_schedule
from coterie.runs.engine.notes import (
    cohort_notes,
    collusion_notes,
    fault_notes,
    filled,
    fitting_privacy,
    schedule_notes,
    scoring_notes,
)
from coterie.runs.records.record import RoundRecord
from coterie.runs.report.observers import MUCH_CLIPPED, ClippingWatch
from coterie.runs.settings.config import with_schedule_length
from coterie.runs.settings.toml import make_config
from coterie.training.schedules import Cosine


def said(**changes: object) -> tuple[str, ...]:
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    config = make_config({"model.name": "softmax-regression", "clients.count": 20, "cohort.size": 9, **keys})
    return cohort_notes(build_run(config, find_federation(config)))


EVERYBODY = {"availability__kind": "equal", "availability__dropout": 0.0, "faults__dropout": 0.0}


def test_circles_that_do_not_fill_the_cohort_are_noted_with_advice() -> None:
    (note,) = said(cohort__privacy=3, **EVERYBODY)
    assert note.startswith("About 6.7 clients will be aggregated in a round on average, of a cohort of 9: ")
    assert "2 circles of 3 or 4 clients fit into 9; a cohort of 11 has room for 3" in note
    assert said(cohort__privacy=4, cohort__size=8, **EVERYBODY) == ()


@pytest.mark.parametrize(("privacy", "absent", "lost"), [(3, 0.0, 0.0), (3, 0.2, 0.0), (2, 0.1, 0.3), (4, 0.05, 0.1)])
def test_the_noted_number_of_clients_is_what_rounds_aggregate(privacy: int, absent: float, lost: float) -> None:
    (note,) = said(
        cohort__privacy=privacy,
        availability__kind="equal",
        availability__dropout=absent,
        faults__dropout=lost,
        faults__steps=["mask"],
    )
    policy = MultiRound(random_circles(20, privacy, np.random.default_rng(0)), 9)
    rng = np.random.default_rng(1)
    taken = simulate(policy, np.full(20, absent), 4000, rng)
    total = 0
    for row in taken:
        there = row & (rng.random(20) >= lost)
        total += sum(len(circle) for circle in policy.circles if there[list(circle)].all())
    assert float(note.split()[1]) == pytest.approx(total / 4000, abs=0.2)


@pytest.mark.parametrize(("privacy", "steps"), [(5, ["mask"]), (3, ["mask", "confirm"]), (6, ["confirm"])])
def test_the_noted_number_counts_rounds_without_a_result(privacy: int, steps: list[str]) -> None:
    """Against a lying server a sum needs c + 2 clients, and a quorum of the session's clients must sign."""
    lost = 0.1
    changes: dict[str, object] = {
        "cohort__privacy": privacy,
        "cohort__size": 12,
        "clients__count": 30,
        "cohort__minimum": 5,
        "aggregation__threat": "active-server",
        "aggregation__collusion": 0.22,
        "availability__kind": "equal",
        "availability__dropout": 0.0,
        "faults__dropout": lost,
        "faults__steps": steps,
    }
    (note,) = said(**changes)
    rng, counted = np.random.default_rng(2), 0
    circles, each = 12 // privacy, (1 - lost) ** (1 / len(steps))
    clients = circles * privacy
    colluders = 6  # of all 30
    for _ in range(20_000):
        there = rng.random((circles, privacy)) < (each if "mask" in steps else 1)
        signing = there & (rng.random((circles, privacy)) < (each if "confirm" in steps else 1))
        summed = there.all(axis=1).sum() * privacy
        if summed >= max(5, colluders + 2) and signing.sum() >= (clients + colluders) // 2 + 1:
            counted += summed
    assert float(note.split()[1]) == pytest.approx(counted / 20_000, abs=0.2)
    assert f"needs {colluders + 2} or more" in note
    assert f"{(clients + colluders) // 2 + 1} of them to confirm" in note


def test_one_circle_is_written_as_one() -> None:
    (note,) = said(
        cohort__privacy=5, cohort__size=9, availability__kind="equal", availability__dropout=0.3, faults__dropout=0.0
    )
    assert "of the rounds find no circle complete" in note
    assert "1 circle of 5 clients fits into 9" in note


@given(st.integers(2, 60), st.integers(1, 60), st.integers(1, 20))
def test_fitted_circles_are_never_smaller_and_never_fill_less(clients: int, cohort: int, privacy: int) -> None:
    cohort, privacy = min(cohort, clients), min(privacy, clients)
    fitted = fitting_privacy(clients, cohort, privacy)
    assert circle_sizes(clients, fitted).min() >= fitted >= privacy
    assert filled(clients, cohort, fitted) >= filled(clients, cohort, privacy)
    assert fitted <= circle_sizes(clients, privacy).max()
    assert fitting_privacy(20, 9, 3) == 4
    assert filled(20, 9, 3) == pytest.approx(20 / 3)
    assert filled(20, 9, 4) == 8


def clipping(*shares: float) -> list[RoundRecord]:
    return [RoundRecord(round=n, outcome=Outcome.COMPLETED, clipped=share) for n, share in enumerate(shares, 1)]


def test_clipping_is_reported_when_it_starts_and_when_it_gets_worse() -> None:
    watch = ClippingWatch(0.5)
    told = [watch.check(record) for record in clipping(0.0, 0.005, 0.89, 0.88, 0.9, 0.995, 0.2)]
    assert [bool(words) for words in told] == [False, False, True, False, False, True, False]
    assert told[2] is not None
    assert told[2].startswith("Round 3: 89.0% of the entries of updates are clipped at ±0.5")
    assert ClippingWatch(0.5, clipping(0.89)).check(clipping(0.88)[0]) is None  # said before the run was resumed


@given(st.lists(st.floats(0, 1), max_size=200))
def test_clipping_is_reported_a_limited_number_of_times(shares: list[float]) -> None:
    watch = ClippingWatch(0.5)
    told = [(record, words) for record in clipping(*shares) if (words := watch.check(record))]
    assert len(told) <= 15
    first = next((n for n, share in enumerate(shares, 1) if share > MUCH_CLIPPED), None)
    assert (told[0][0].round if told else None) == first


@given(st.integers(1, 50), st.integers(1, 50), st.floats(0, 1))
def test_more_rounds_later_do_not_change_a_cosine(begun: int, more: int, floor: float) -> None:
    start = with_schedule_length(make_config({"rounds": begun, "training.schedule.floor": floor}))
    longer = start.model_copy(update={"rounds": begun + more})
    before, after = make_schedule(start), make_schedule(longer)
    assert [after(number) for number in range(1, begun + 1)] == [before(number) for number in range(1, begun + 1)]
    assert [before(number) for number in range(1, begun + 1)] == [
        floor + (1 - floor) * (1 + math.cos(math.pi * ((number - 1) / begun))) / 2 for number in range(1, begun + 1)
    ]
    assert {after(begun + number) for number in range(1, more + 1)} == {before(begun)}
    assert not schedule_notes(start)
    (note,) = schedule_notes(longer)
    assert f"falls until round {begun} and stays at" in note
    assert with_schedule_length(longer) == longer
    assert isinstance(after, Cosine)


def test_a_run_of_an_older_version_takes_its_length_from_what_it_began_with() -> None:
    begun = make_config({"rounds": 10})
    assert begun.training.schedule.rounds == 0
    longer = with_schedule_length(make_config({"rounds": 30}), begun)
    assert longer.training.schedule.rounds == 10
    assert with_schedule_length(make_config({"rounds": 40}), longer).training.schedule.rounds == 10


@pytest.mark.parametrize("threat", ["honest-but-curious", "active-server"])
def test_a_share_that_rounds_to_no_colluder_is_reported(threat: str) -> None:
    def notes(collusion: float) -> tuple[str, ...]:
        config = make_config({"aggregation.threat": threat, "aggregation.collusion": collusion, "cohort.privacy": 4})
        return collusion_notes(build_run(config, find_federation(config)))

    (said,) = notes(0.02)  # of 40
    assert "collusion = 0.02 of 40 clients is less than one client, so c = 0" in said
    assert said.endswith("c = 1 needs aggregation.collusion = 0.03")
    assert notes(0.03) == notes(0.0) == notes(-1.0) == ()


def test_an_adversary_on_the_network_is_mentioned() -> None:
    assert fault_notes(make_config({}).faults) == ()
    assert fault_notes(make_config({"faults.victims": ["client-01"], "faults.victim_drops": 0.0}).faults) == ()
    (note,) = fault_notes(make_config({"faults.victims": ["client-01"], "faults.victim_drops": 0.5}).faults)
    assert note.startswith("A network adversary drops the packets of 1 client in 50% of the rounds")


@pytest.mark.parametrize(
    ("clients", "algorithm", "sampled"), [(1_200, "ditto", True), (900, "ditto", False), (1_200, "fedavg", False)]
)
def test_if_there_are_many_own_models_only_a_sample_is_scored_with_a_note(
    clients: int, algorithm: str, sampled: bool
) -> None:
    config = make_config(
        {
            "model.name": "softmax-regression",
            "clients.count": clients,
            "partition.kind": "sampled",
            "partition.examples": 2,
            "training.algorithm": algorithm,
        }
    )
    built = build_run(config, find_federation(config))
    models = built.public_models()
    scored = built.scored(models)
    assert scored == built.scored(models)
    assert "global" in scored
    if not sampled:
        assert scored == list(models)
        assert scoring_notes(built) == ()
        return
    own = [name for name in scored if name != "global"]
    assert own == sorted(set(own))
    assert len(own) == 1_000
    (note,) = scoring_notes(built)
    assert "1,000 of 1,200, drawn at random once, are scored" in note
