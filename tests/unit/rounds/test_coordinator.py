"""The coordinator: a sum is in the ledger before it is revealed, and all records of a round agree."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.rounds import Population, Stage, make_roster

from coterie.cohorts.ledger import Ledger, Outcome
from coterie.errors import LocalProtocolError, RoundAborted, ThresholdError
from coterie.rounds import PeerRound, Round
from coterie.secagg import Aggregate, Step, ThreatMode

EVERYBODY = np.ones(6, bool)


def opened(population: Population, number: int = 1) -> Round[Aggregate]:
    return population.coordinator.open(number, EVERYBODY, np.random.default_rng(0))


def full(*_: object, **__: object) -> None:
    """Fail as a write to a full disk does."""
    raise OSError("no space left")


@pytest.mark.parametrize("mode", list(ThreatMode))
def test_the_row_is_in_the_ledger_before_any_client_is_asked_to_reveal(ledger: Ledger, mode: ThreatMode) -> None:
    population = Population(make_roster(6), ledger, cohort=6, mode=mode)
    played = opened(population)
    inbox = played.invite()
    while inbox:
        rows = [aggregated for _, aggregated in ledger.rows()]
        assert bool(rows) == (played.step is Step.REVEAL)
        for name, message in inbox.items():
            played.receive(name, population.members[name].answer(message))
        inbox = played.close()
    assert ledger.outcomes() == {1: Outcome.COMPLETED}
    assert played.result.revealed == population.roster.names


def test_nothing_is_revealed_if_the_ledger_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, ThreatMode.HONEST_BUT_CURIOUS, two_trips=False).until(Step.MASK)
    for name, message in stage.inbox.items():
        stage.round.receive(name, stage.members[name].answer(message))
    monkeypatch.setattr(stage.ledger, "reveal", full)
    with pytest.raises(OSError, match="no space"):
        stage.round.close()
    with pytest.raises(LocalProtocolError, match="not over"):
        _ = stage.round.result


def test_a_sum_that_cannot_be_decoded_is_aborted_everywhere(ledger: Ledger) -> None:
    def decode(_: Aggregate) -> Aggregate:
        raise RoundAborted("the noise wrapped around")

    population = Population(make_roster(6), ledger, cohort=6)
    population.coordinator.decode = decode
    result = population.play(1)
    assert result.outcome is Outcome.ABORTED_AFTER_REVEAL
    assert (result.value, result.reason) == (None, "the noise wrapped around")
    assert ledger.outcomes() == {1: Outcome.ABORTED_AFTER_REVEAL}
    assert [entry.kind for entry in ledger.entries()] == ["reveal", "abort"]


def test_a_round_can_be_given_up_at_any_time(ledger: Ledger) -> None:
    population = Population(make_roster(6), ledger, cohort=6)
    played = opened(population)
    played.invite()
    played.abort(ThresholdError("nobody answers"))
    assert played.result.outcome is Outcome.ABORTED_BEFORE_REVEAL
    assert played.receive("client-00", b"late") is not None
    with pytest.raises(LocalProtocolError, match="is over"):
        played.close()


def test_a_round_without_clients_is_skipped(ledger: Ledger) -> None:
    population = Population(make_roster(6), ledger, cohort=6)
    played = population.coordinator.open(1, ~EVERYBODY, np.random.default_rng(0))
    assert played.invite() == {}
    assert played.step is Step.DONE
    assert played.result.outcome is Outcome.SKIPPED
    assert played.result.reason == "too few clients are available"
    assert ledger.outcomes() == {1: Outcome.SKIPPED}


def test_a_cohort_below_the_minimum_says_what_a_sum_needs(ledger: Ledger) -> None:
    population = Population(make_roster(6), ledger, cohort=3)
    population.coordinator.settings = replace(population.coordinator.settings, minimum=8)
    played = population.coordinator.open(1, EVERYBODY, np.random.default_rng(0))
    assert played.result.outcome is Outcome.SKIPPED
    assert played.result.reason == f"{len(played.selected)} clients selected, and a sum needs 8 or more"


def test_selection_counts_what_came_before_the_round(ledger: Ledger) -> None:
    """Also when the round is recorded already, by a server that crashed in it."""
    seen: list[list[int]] = []

    class Watching:
        def select(self, available: np.ndarray, frequencies: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            seen.append(frequencies.tolist())
            return np.arange(6)

    population = Population(make_roster(6), ledger, policy=Watching())
    population.play(1)
    population.play(2)
    population.play(2, resuming=True)
    assert seen == [[0] * 6, [1] * 6, [1] * 6]


def test_rounds_are_counted_from_one(ledger: Ledger) -> None:
    population = Population(make_roster(6), ledger, cohort=6)
    with pytest.raises(LocalProtocolError, match="counted from 1"):
        opened(population, 0)


def test_a_round_that_fails_when_it_is_repeated_counts_as_revealed(ledger: Ledger) -> None:
    """A server crashed after it had asked clients to reveal. No client answers the second time, and the row stays."""
    population = Population(make_roster(6), ledger, cohort=6)
    ledger.reveal(1, population.roster.names, promised=3, roster=population.roster.digest)
    again = population.coordinator.open(1, EVERYBODY, np.random.default_rng(0), resuming=True)
    again.invite()
    assert again.close() == {}
    assert again.result.outcome is Outcome.ABORTED_AFTER_REVEAL is ledger.outcomes()[1]
    assert again.result.revealed == population.roster.names


def peers(population: Population, number: int = 1, *, resuming: bool = False) -> PeerRound[Aggregate]:
    return population.coordinator.open_peers(number, EVERYBODY, np.random.default_rng(0), resuming=resuming)


def test_the_row_is_in_the_ledger_before_peers_add(ledger: Ledger) -> None:
    population = Population(make_roster(6), ledger, cohort=6)
    opened = peers(population)
    seen: list[object] = []

    def add() -> np.ndarray:
        seen.extend(ledger.rows())
        return np.arange(4)

    opened.add(add)
    assert seen == [(1, population.roster.names)]
    assert opened.result.value is not None
    assert opened.result.value.total.tolist() == [0, 1, 2, 3]
    assert (opened.result.revealed, opened.result.dropped) == (population.roster.names, ())
    assert ledger.outcomes() == {1: Outcome.COMPLETED}
    with pytest.raises(LocalProtocolError, match="is over"):
        opened.add(add)


def test_peers_do_not_add_where_the_row_cannot_be_written(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = peers(Population(make_roster(6), ledger, cohort=6))

    def add() -> np.ndarray:
        pytest.fail("the clients added without a row")

    monkeypatch.setattr(ledger, "reveal", full)
    with pytest.raises(OSError, match="no space"):
        opened.add(add)


def test_a_sum_of_peers_that_fails_counts_as_revealed(ledger: Ledger) -> None:
    opened = peers(Population(make_roster(6), ledger, cohort=6))

    def add() -> np.ndarray:
        raise RoundAborted("client-01 sent nothing")

    opened.add(add)
    assert opened.result.outcome is Outcome.ABORTED_AFTER_REVEAL is ledger.outcomes()[1]
    assert opened.result.reason == "client-01 sent nothing"


def test_a_peer_that_drops_out_ends_the_round_before_the_row(ledger: Ledger) -> None:
    population = Population(make_roster(6), ledger, cohort=6)
    opened = peers(population)
    gone = population.roster.names[0]
    opened.abort(RoundAborted(f"{gone} left"), missing=[gone])
    assert (opened.result.outcome, opened.result.dropped) == (Outcome.ABORTED_BEFORE_REVEAL, (gone,))
    assert list(ledger.rows()) == []
    again = peers(population, 2)
    again.abort(RoundAborted("nobody is sure to be honest"))
    assert again.result.dropped == ()


def test_too_few_peers_are_skipped(ledger: Ledger) -> None:
    population = Population(make_roster(6), ledger, cohort=6)
    opened = population.coordinator.open_peers(1, ~EVERYBODY, np.random.default_rng(0))
    assert opened.over
    assert opened.result.outcome is Outcome.SKIPPED is ledger.outcomes()[1]
