"""Sessions with prekeys, from end to end."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cast import make_inputs, make_terms, ring_sum
from tests.support.prekey_cast import PrekeyCast

from coterie.errors import ConfigError, RoundAborted
from coterie.graphs.topology import Harary
from coterie.secagg import Step
from coterie.secagg.prekeys import PrekeyBook


@settings(max_examples=100)
@given(
    size=st.integers(3, 12),
    circle=st.integers(0, 3),
    active=st.booleans(),
    data=st.data(),
)
def test_the_server_gets_the_sum_of_whole_circles_or_nothing(
    size: int, circle: int, active: bool, data: st.DataObject
) -> None:
    circles = tuple(number // circle for number in range(size)) if circle else None
    terms = make_terms(size, active=active, circles=circles)
    cast = PrekeyCast(terms, make_inputs(terms, data.draw(st.integers(0, 1000))))
    subset = st.sets(st.sampled_from(terms.clients), max_size=size // 2)
    lost = {step: data.draw(subset, label=step) for step in (Step.CONTRIBUTE, Step.CONFIRM, Step.REVEAL)}
    survivors = set(terms.clients) - lost[Step.CONTRIBUTE]
    expected = {terms.clients[client] for client in terms.aggregated([terms.index[name] for name in survivors])}
    try:
        aggregate = cast.play(lost)
    except RoundAborted:
        confirmed = len(expected) < cast.book.direct_floor
        left = survivors - (lost[Step.CONFIRM] if confirmed else set())
        too_few = len(expected) < terms.fewest or len(survivors) < cast.book.threshold
        unsigned = confirmed and len(left) < terms.quorum
        assert too_few or unsigned or len(left - lost[Step.REVEAL]) < cast.book.threshold
        return
    assert set(aggregate.clients) == expected
    assert np.array_equal(aggregate.total, ring_sum(terms, cast.inputs, expected))


@pytest.mark.parametrize(("lost", "trips"), [((), 2), ((0, 1, 2), 2), ((0, 2, 4), 3)])
def test_two_trips_are_enough_while_few_circles_are_lost(lost: tuple[int, ...], trips: int) -> None:
    terms = make_terms(12, active=True, colluders=1, circles=tuple(number // 2 for number in range(12)))
    cast = PrekeyCast(terms)
    played = []
    outgoing = cast.server.invite()
    gone = {terms.clients[client] for client in lost}
    while outgoing:
        played.append(cast.server.step)
        for name, message in outgoing.items():
            if name not in gone:
                first = cast.server.step is Step.CONTRIBUTE
                cast.server.receive(name, cast.contribute(name) if first else cast.answer(name, message))
        outgoing = cast.server.close()
    assert len(played) == trips
    assert len(cast.server.aggregate.clients) == {0: 12, 3: 8 if lost == (0, 1, 2) else 6}[len(lost)]


@settings(max_examples=100)
@given(size=st.integers(3, 60), colluders=st.integers(0, 20))
def test_without_circles_nothing_is_ever_confirmed(size: int, colluders: int) -> None:
    """If enough clients are left to open secrets, enough are left to open them without confirmation."""
    c = min(colluders, size - 2)
    terms = make_terms(size, active=True, colluders=c)
    book = PrekeyCast(terms).book
    assert book.direct_floor <= book.threshold == terms.quorum


def test_books_need_the_complete_graph() -> None:
    terms = make_terms(8, topology=Harary(4))
    with pytest.raises(ConfigError, match="complete graph"):
        PrekeyBook(terms, PrekeyCast(make_terms(8)).book.prekeys)
