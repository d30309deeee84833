"""Strong T of the ledger holds for any history of joins, leaves, availability and losses inside rounds."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.support.homes import folder_in_memory

from coterie.cohorts.ledger import Ledger
from coterie.cohorts.policies import MultiRound
from coterie.cohorts.roster import Client, Roster
from coterie.errors import SeparationRisk
from coterie.secagg import Terms

NEWCOMERS = st.tuples(st.just("join"), st.integers(1, 7))
LEAVERS = st.tuples(st.just("leave"), st.integers(0, 2**16))
ROUNDS = st.tuples(st.just("round"), st.integers(0, 2**16))
HISTORIES = st.lists(st.one_of(NEWCOMERS, LEAVERS, ROUNDS, ROUNDS, ROUNDS), min_size=3, max_size=25)


def strong_privacy(ledger: Ledger) -> int | None:
    """From its definition: the rarest non-zero column of the participation matrix."""
    matrix = ledger.participation().matrix
    columns, counts = np.unique(matrix, axis=1, return_counts=True)
    return min((int(n) for column, n in zip(columns.T, counts, strict=True) if column.any()), default=None)


def play(history: list[tuple[str, int]], privacy: int, ledger: Ledger, *, aligned: bool) -> int:
    """Play a history and return how many rounds lost part of a circle."""
    broken = 0
    roster = Roster(privacy=privacy, clients=()).join(Client(f"founder-{n}") for n in range(4 * privacy))
    for number, (what, value) in enumerate(history):
        rng = np.random.default_rng([value, number])
        if what == "join":
            roster = roster.join(Client(f"newcomer-{number}-{n}") for n in range(value))
        elif what == "leave":
            roster = roster.leave([str(rng.choice(roster.names))])
        elif roster.active:
            cohort = privacy * int(rng.integers(1, len(roster.active) + 1))
            counts = ledger.frequencies()
            frequencies = np.array([counts[name] for name in roster.names], dtype=np.int64)
            available = rng.random(len(roster.names)) > 0.1
            chosen = MultiRound(roster.usable(), cohort).select(available, frequencies, rng)
            survivors = [position for position in range(len(chosen)) if rng.random() > 0.1]
            if len(chosen) < 2:
                continue
            circle_of = {member: number for number, circle in enumerate(roster.circles) for member in circle}
            terms = Terms(
                session=bytes(16),
                clients=tuple(roster.names[client] for client in chosen),
                bits=16,
                length=1,
                circles=tuple(circle_of[client] for client in chosen.tolist()) if aligned else None,
            )
            aggregated = [terms.clients[position] for position in terms.aggregated(survivors)]
            if aggregated:
                ledger.reveal(number, aggregated, promised=privacy, roster=roster.digest)
                broken += len(aggregated) < len(survivors)
    return broken


@settings(max_examples=60)
@given(HISTORIES, st.integers(1, 4))
def test_strong_privacy_of_the_ledger_holds(history: list[tuple[str, int]], privacy: int) -> None:
    with folder_in_memory() as folder, Ledger.open(Path(folder) / "ledger") as ledger:
        event("circles broke" if play(history, privacy, ledger, aligned=True) else "no circle broke")
        found = strong_privacy(ledger)
        assert found is None or found >= privacy


def test_the_guard_refuses_rounds_without_alignment() -> None:
    with folder_in_memory() as folder, Ledger.open(Path(folder) / "ledger") as ledger:
        with pytest.raises(SeparationRisk):
            play([("round", seed) for seed in range(20)], 3, ledger, aligned=False)
        found = strong_privacy(ledger)
        assert found is None or found >= 3
