from contextlib import suppress

from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.cast import make_inputs, make_terms

from coterie.arithmetic import RingVector
from coterie.errors import RoundAborted
from coterie.rounds import one_off
from coterie.runs.engine.presence import training_clients
from coterie.secagg import Step
from coterie.transports.faults import Direction, Fault, FaultKind, Faults
from coterie.transports.memory import Carrier, Session

LOSSES = st.sampled_from([FaultKind.DROP, FaultKind.DELAY])
STEPS = st.sampled_from([Step.ADVERTISE, Step.SHARE, Step.MASK, Step.REVEAL])


def schedules(kinds: st.SearchStrategy[FaultKind]) -> st.SearchStrategy[Faults]:
    """Return schedules of up to four faults of these kinds, each in some step."""
    up = st.builds(Fault, kinds, STEPS, probability=st.floats(0, 0.4))
    return st.builds(Faults, st.integers(0, 2**32), st.lists(up, max_size=4).map(tuple))


def asked_for_inputs(faults: Faults) -> set[str]:
    """Play a session; return who had to have an input ready."""
    terms = make_terms(5)
    inputs = make_inputs(terms)
    asked: set[str] = set()

    def ask(name: str) -> RingVector:
        asked.add(name)
        return inputs[name]

    session = Session(terms, one_off(terms, ask), Carrier(faults=faults, workers=1))
    with suppress(RoundAborted):
        session.run()
    return asked


@given(schedules(st.sampled_from(FaultKind)), st.floats(0, 0.4))
def test_every_client_asked_for_an_update_has_trained(faults: Faults, lost: float) -> None:
    down = Fault(FaultKind.DROP, Step.SHARE, probability=lost, direction=Direction.DOWN)
    faults = Faults(faults.seed, (*faults.rules, down))
    assert asked_for_inputs(faults) <= set(training_clients(faults, make_terms(5).clients))


@given(schedules(LOSSES))
@example(Faults())
def test_clients_that_drop_out_before_updates_are_due_are_not_trained(faults: Faults) -> None:
    asked = asked_for_inputs(faults)
    too_few_shared = not asked and faults.rules
    assert too_few_shared or asked == set(training_clients(faults, make_terms(5).clients))
