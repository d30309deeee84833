"""Many rounds of real secure aggregation in process, with circles, ledger, guard and the clients' own records."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.cast import identity_for, names

from coterie.cohorts.circles import random_circles
from coterie.cohorts.guard import SeparationRisk
from coterie.cohorts.ledger import Ledger, Outcome
from coterie.cohorts.memory import ClientRecord
from coterie.cohorts.policies import MultiRound, Random
from coterie.cohorts.roster import Client, Roster, RosterPin
from coterie.secagg import Step
from coterie.transports.faults import Fault, Faults, Kind, dropouts
from coterie.transports.rounds import CircleKeeper, Rounds, SessionSettings

SETTINGS = SessionSettings(bits=16, length=4)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.sqlite") as opened:
        yield opened


def make_roster(size: int = 24, privacy: int = 3) -> Roster:
    batches = random_circles(size, privacy, np.random.default_rng(1))
    return Roster.found([Client(name, identity_for(name).public) for name in names(size)], batches, privacy)


def one_hot(roster: Roster) -> dict[str, np.ndarray]:
    """Inputs that show who is in a sum: powers of two, over four entries."""
    vectors = {}
    for number, name in enumerate(roster.names):
        vectors[name] = np.zeros(4, np.uint16)
        vectors[name][number // 8] = 1 << (number % 8)
    return vectors


def members(roster: Roster, total: np.ndarray) -> set[str]:
    return {name for number, name in enumerate(roster.names) if total[number // 8] >> (number % 8) & 1}


def strong_privacy(matrix: np.ndarray) -> int:
    """From its definition: the rarest non-zero column."""
    columns, counts = np.unique(matrix, axis=1, return_counts=True)
    return int(min(count for column, count in zip(columns.T, counts, strict=True) if column.any()))


def test_three_hundred_rounds_with_losses_inside_rounds(ledger: Ledger) -> None:
    roster = make_roster()
    rounds = Rounds(roster, MultiRound(roster.usable(), 12), ledger, SETTINGS, workers=1)
    rng = np.random.default_rng(0)
    vectors = one_hot(roster)
    outcomes, split = [], 0
    for number in range(300):
        faults = dropouts(0.0125, seed=number)  # about 5% over the four steps
        played = rounds.play(number, rng.random(24) >= 0.1, vectors, rng, faults=faults)
        outcomes.append(played.outcome)
        if played.aggregate is not None and played.report is not None:
            assert members(roster, played.aggregate.total) == set(played.aggregate.clients)
            split += len(played.report.survivors) > len(played.aggregate.clients)
    participation = ledger.participation(roster.names)
    assert strong_privacy(participation.matrix) >= 3
    assert outcomes.count(Outcome.COMPLETED) > 100
    assert split > 20  # circles really broke inside rounds, and were left out whole
    assert dict(enumerate(outcomes)) == ledger.outcomes()
    assert rounds.frequencies.tolist() == participation.matrix.sum(axis=0).tolist()
    ledger.verify()


def test_without_alignment_the_guard_steps_in(ledger: Ledger) -> None:
    roster = make_roster()
    naive = SessionSettings(bits=16, length=4, aligned=False)
    rounds = Rounds(roster, MultiRound(roster.usable(), 12), ledger, naive, workers=1)
    rng = np.random.default_rng(0)
    caught = []
    for number in range(60):
        played = rounds.play(number, np.ones(24, bool), one_hot(roster), rng, faults=dropouts(0.0125, seed=number))
        if isinstance(played.error, SeparationRisk):
            caught.append(number)
            assert played.outcome is Outcome.ABORTED_BEFORE_REVEAL
            assert played.report is not None
            assert played.report.revealers == ()
    assert caught
    assert strong_privacy(ledger.participation(roster.names).matrix) >= 3


def test_without_alignment_and_without_promise_somebody_is_singled_out(ledger: Ledger) -> None:
    """What the guard prevents is real: the history it would have refused has strong T = 1."""
    roster = make_roster()
    naive = SessionSettings(bits=16, length=4, aligned=False)
    rounds = Rounds(roster, MultiRound(roster.usable(), 12), ledger, naive, promised=1, workers=1)
    rng = np.random.default_rng(0)
    for number in range(60):
        rounds.play(number, np.ones(24, bool), one_hot(roster), rng, faults=dropouts(0.0125, seed=number))
    assert strong_privacy(ledger.participation(roster.names).matrix) < 3


def test_random_selection_is_stopped_by_the_guard(ledger: Ledger) -> None:
    roster = make_roster()
    naive = SessionSettings(bits=16, length=4, aligned=False)
    rounds = Rounds(roster, Random(12), ledger, naive, workers=1)
    rng = np.random.default_rng(0)
    outcomes = [rounds.play(n, np.ones(24, bool), one_hot(roster), rng).outcome for n in range(20)]
    assert outcomes[0] is Outcome.COMPLETED
    assert Outcome.ABORTED_BEFORE_REVEAL in outcomes
    assert strong_privacy(ledger.participation(roster.names).matrix) >= 3


def keepers_of(roster: Roster, folder: Path) -> dict[str, CircleKeeper]:
    keepers = {}
    for client in roster.clients:
        circle = [mate.name for mate in roster.circle_of(client.name) or ()]
        record = ClientRecord.open(folder / client.name, client=client.name, circle=circle, promised=roster.privacy)
        keepers[client.name] = CircleKeeper(RosterPin.first(roster, client), record)
    return keepers


def test_clients_keep_their_own_records(ledger: Ledger, tmp_path: Path) -> None:
    roster = make_roster(12)
    keepers = keepers_of(roster, tmp_path)
    identities = {name: identity_for(name) for name in roster.names}
    policy = MultiRound(roster.usable(), 6)
    rounds = Rounds(roster, policy, ledger, SETTINGS, identities=identities, keepers=keepers, workers=1)
    rng = np.random.default_rng(0)
    for number in range(4):
        played = rounds.play(number, np.ones(12, bool), one_hot(roster), rng)
        assert played.outcome is Outcome.COMPLETED
    matrix = ledger.participation(roster.names).matrix
    for column, name in zip(matrix.T, roster.names, strict=True):
        assert sum(answer.taking_part for answer in keepers[name].record.answers()) == column.sum()


def test_clients_refuse_a_regrouped_roster_whatever_the_server_says(ledger: Ledger, tmp_path: Path) -> None:
    roster = make_roster(12)
    keepers = keepers_of(roster, tmp_path)
    regrouped = Roster.found(roster.clients, random_circles(12, 3, np.random.default_rng(9)), 3)
    rounds = Rounds(regrouped, MultiRound(regrouped.usable(), 6), ledger, SETTINGS, keepers=keepers, workers=1)
    played = rounds.play(0, np.ones(12, bool), one_hot(regrouped), np.random.default_rng(0))
    assert played.outcome is Outcome.ABORTED_BEFORE_REVEAL
    assert played.report is not None
    assert {refusal.step for refusal in played.report.refusals} == {Step.ADVERTISE}
    assert ledger.participation().matrix.size == 0


def test_rounds_that_fail_are_told_apart(ledger: Ledger) -> None:
    roster = make_roster(12)
    rounds = Rounds(roster, MultiRound(roster.usable(), 6), ledger, SETTINGS, workers=1)
    rng, everybody = np.random.default_rng(0), np.ones(12, bool)

    def lost(step: Step) -> Faults:
        return Faults(0, (Fault(Kind.DROP, step),))

    played = [
        rounds.play(0, ~everybody, one_hot(roster), rng),
        rounds.play(1, everybody, one_hot(roster), rng, faults=lost(Step.MASK)),
        rounds.play(2, everybody, one_hot(roster), rng, faults=lost(Step.REVEAL)),
        rounds.play(3, everybody, one_hot(roster), rng),
    ]
    assert [entry.outcome for entry in played] == [
        Outcome.SKIPPED,
        Outcome.ABORTED_BEFORE_REVEAL,
        Outcome.ABORTED_AFTER_REVEAL,
        Outcome.COMPLETED,
    ]
    assert [number for number, _ in ledger.rows()] == [2, 3]  # what may have been seen counts, what cannot does not
    assert list(ledger.outcomes().values()) == [entry.outcome for entry in played]


def test_who_is_selected_is_told_before_their_session_begins(ledger: Ledger) -> None:
    roster = make_roster()
    rounds = Rounds(roster, MultiRound(roster.usable(), 12), ledger, SETTINGS, workers=1)
    told: list[tuple[str, ...]] = []
    heard: list[str] = []

    def select(names: tuple[str, ...]) -> None:
        assert not heard
        told.append(names)

    played = rounds.play(
        0,
        np.ones(24, bool),
        one_hot(roster),
        np.random.default_rng(0),
        on_upload=lambda _step, name, _message: heard.append(name),
        on_select=select,
    )
    assert told == [played.selected]
    assert set(heard) == set(played.selected)
    rounds.play(1, np.zeros(24, bool), one_hot(roster), np.random.default_rng(0), on_select=select)  # nobody to tell
    assert len(told) == 1
