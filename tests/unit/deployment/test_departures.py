"""The number of nodes that may leave a round: as computed, in real sessions, and as the guide states."""

import re
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.arithmetic.ring import Ring
from coterie.cohorts.circles import circle_sizes
from coterie.crypto.entropy import SystemEntropy
from coterie.crypto.signing import Identity
from coterie.deployment.departures import SessionOutlook
from coterie.errors import RoundAborted
from coterie.rounds.member import one_off
from coterie.secagg.server import Step
from coterie.secagg.terms import Terms, ThreatMode
from coterie.transports.faults import Fault, FaultKind, Faults
from coterie.transports.memory import Carrier, Session, make_book

ACTIVE, CURIOUS = ThreatMode.ACTIVE_SERVER, ThreatMode.HONEST_BUT_CURIOUS
GUIDE = Path(__file__).parents[3] / "docs" / "flower.md"
PROTOCOLS = pytest.mark.parametrize("two_trips", [False, True], ids=["papers", "two-trips"])
STEPS = {
    False: [Step.ADVERTISE, Step.SHARE, Step.MASK, Step.CONFIRM, Step.REVEAL],
    True: [Step.CONTRIBUTE, Step.CONFIRM, Step.REVEAL],
}


def has_result(outlook: SessionOutlook, leaving: tuple[int, ...], step: Step, *, two_trips: bool) -> bool:
    """Return whether a session has a result if these clients leave before they answer this step."""
    names = tuple(f"n{number}" for number in range(outlook.clients))
    identities = {name: Identity.generate(SystemEntropy()) for name in names}
    active = outlook.mode is ACTIVE
    terms = Terms(
        session=SystemEntropy().draw("session", 32),
        clients=names,
        bits=16,
        length=1,
        circles=tuple(number for number, size in enumerate(outlook.sizes) for _ in range(size)),
        minimum=outlook.minimum,
        mode=outlook.mode,
        colluders=outlook.chosen_colluders if active else None,
        identities=tuple(identities[name].public for name in names) if active else (),
    )
    faults = Faults(rules=(Fault(FaultKind.DROP, step, tuple(names[number] for number in leaving)),) if leaving else ())
    vector = Ring(16).zeros(1)
    try:
        members = one_off(terms, lambda _name: vector, identities=identities)
        Session(terms, members, Carrier(faults), make_book(terms, members) if two_trips else None).run()
    except RoundAborted:
        return False
    return True


@st.composite
def outlooks(draw: st.DrawFn) -> SessionOutlook:
    privacy = draw(st.integers(2, 3))
    nodes = draw(st.integers(privacy, 8))
    mode = draw(st.sampled_from([ACTIVE, CURIOUS]))
    colluders = draw(st.none() | st.integers(0, max(0, nodes - 2))) if mode is ACTIVE else None
    sizes = tuple(circle_sizes(nodes, privacy).tolist())
    return SessionOutlook(sizes, mode, min(draw(st.integers(2, 4)), nodes), colluders)


@given(outlooks(), st.data())
@settings(max_examples=60, deadline=None)
def test_any_clients_up_to_the_stated_number_may_leave(outlook: SessionOutlook, data: st.DataObject) -> None:
    two_trips = data.draw(st.booleans())
    steps = [step for step in STEPS[two_trips] if outlook.mode is ACTIVE or step is not Step.CONFIRM]
    if outlook.departures:
        leaving = data.draw(st.sets(st.integers(0, outlook.clients - 1), max_size=outlook.departures))
        assert has_result(outlook, tuple(leaving), data.draw(st.sampled_from(steps)), two_trips=two_trips)


@PROTOCOLS
@pytest.mark.parametrize("nodes", range(3, 9))
@pytest.mark.parametrize("colluders", [None, 0, 1])
def test_one_more_can_end_the_round(nodes: int, colluders: int | None, two_trips: bool) -> None:
    outlook = SessionOutlook(tuple(circle_sizes(nodes, 2).tolist()), ACTIVE, 2, colluders)
    more = outlook.departures + 1
    assert any(
        not has_result(outlook, leaving, step, two_trips=two_trips)
        for step in STEPS[two_trips][-3:]
        for leaving in combinations(range(nodes), more)
    )


@pytest.mark.parametrize(("nodes", "colluders", "departures"), [(3, 0, 0), (4, 0, 1), (5, 0, 1), (6, 1, 1), (7, 2, 1)])
def test_by_default_one_of_four_or_more_nodes_may_leave(nodes: int, colluders: int, departures: int) -> None:
    outlook = SessionOutlook(tuple(circle_sizes(nodes, 2).tolist()), ACTIVE)
    assert (outlook.chosen_colluders, outlook.departures) == (colluders, departures)


def test_given_colluders_are_kept_and_the_advice_names_the_alternative() -> None:
    outlook = SessionOutlook((2, 2), ACTIVE, colluders=1)
    assert outlook.departures == 0
    assert outlook.describe() == (
        "a round of 4 nodes in 2 circles: none of them may leave; protects against a malicious server with 1 colluding "
        "node (colluders=1)"
    )
    assert outlook.advise().startswith("colluders=0 lets 1 leave")
    assert "they are one circle" in SessionOutlook((3,), ACTIVE).advise()
    assert SessionOutlook((2, 2, 2), CURIOUS, minimum=5).advise().startswith("minimum=2 lets 2 leave")
    assert "more circles" in SessionOutlook((2, 2), CURIOUS).advise()


def test_the_guide_has_the_numbers() -> None:
    (table,) = re.findall(r"\| nodes \| circles .*?\n\n", GUIDE.read_text(), re.DOTALL)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[2:]]
    expected = []
    for nodes in range(3, 11):
        sizes = tuple(circle_sizes(nodes, 2).tolist())
        default = SessionOutlook(sizes, ACTIVE)
        others = [SessionOutlook(sizes, ACTIVE, colluders=colluders).departures for colluders in (0, 1)]
        numbers = [default.chosen_colluders, default.departures, *others, SessionOutlook(sizes, CURIOUS).departures]
        expected.append([str(nodes), " + ".join(map(str, sizes)), *map(str, numbers)])
    assert rows == expected
