"""Random sessions: any size, topology, threshold, circle map, threat mode and schedule of faults."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from tests.support.cast import entropy_for, identity_for, make_inputs, make_terms, names

from coterie.arithmetic.ring import RingVector
from coterie.errors import CoterieError
from coterie.graphs.topology import Complete, ErdosRenyi, Harary
from coterie.rounds import Member, one_off
from coterie.secagg import Aggregate, Step, Terms
from coterie.transports.faults import Direction, Fault, FaultKind, Faults
from coterie.transports.memory import Carrier, ClientSide, Session

TOPOLOGIES = st.one_of(
    st.just(Complete()),
    st.floats(0.05, 1.0).map(ErdosRenyi),
    st.integers(1, 6).map(lambda half: Harary(2 * half)),
)
STEPS = st.sampled_from([Step.ADVERTISE, Step.SHARE, Step.MASK, Step.CONFIRM, Step.REVEAL])


class Parked:
    """A client whose state is bytes between two messages, as in a runtime that starts a process for each."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._state: bytes | None = None

    def answer(self, message: bytes) -> bytes:
        if self._state is not None:
            self._member.resume(self._state)
        reply = self._member.answer(message)
        self._state = self._member.park()
        self._member.leave()
        return reply


@dataclass(frozen=True)
class Setting:
    """A session about to be played."""

    terms: Terms
    faults: Faults
    park: bool

    def play(self) -> "Played":
        inputs = make_inputs(self.terms)
        identities = {name: identity_for(name) for name in self.terms.clients} if self.terms.active else None
        members: Mapping[str, ClientSide] = one_off(self.terms, inputs, identities=identities, entropy=entropy_for)
        if self.park:
            members = {name: Parked(member) for name, member in members.items() if isinstance(member, Member)}
        session = Session(self.terms, members, Carrier(self.faults, workers=1))
        try:
            return Played(session, inputs, session.run(), None)
        except CoterieError as error:
            return Played(session, inputs, None, error)


@dataclass(frozen=True)
class Played:
    """A session that has been played, with its result or its error."""

    session: Session
    inputs: dict[str, RingVector]
    result: Aggregate | None
    error: CoterieError | None


@st.composite
def settings_of_sessions(draw: st.DrawFn, kinds: tuple[FaultKind, ...] = tuple(FaultKind)) -> Setting:
    size = draw(st.integers(2, 12))
    changes: dict[str, Any] = {
        "topology": draw(TOPOLOGIES),
        "bits": draw(st.integers(1, 64)),
        "length": draw(st.integers(1, 9)),
        "threshold": draw(st.one_of(st.none(), st.integers(1, size))),
        "minimum": draw(st.one_of(st.just(2), st.integers(2, size))),
        "session": draw(st.binary(min_size=16, max_size=20)),
    }
    if draw(st.booleans()):
        changes["circles"] = tuple(draw(st.lists(st.integers(0, 4), min_size=size, max_size=size)))
    some = st.lists(st.sampled_from(names(size)), max_size=4, unique=True).map(tuple)
    down_kinds = [kind for kind in (FaultKind.DROP, FaultKind.TAMPER) if kind in kinds]
    rule = st.one_of(
        st.builds(Fault, st.sampled_from(kinds), STEPS, some, st.sampled_from([0.5, 1.0])),
        st.builds(Fault, st.sampled_from(down_kinds), STEPS, some, direction=st.just(Direction.DOWN)),
    )
    faults = Faults(draw(st.integers(0, 2**32)), tuple(draw(st.lists(rule, max_size=6))))
    active = draw(st.booleans())
    if active:
        changes["colluders"] = draw(st.integers(0, min(size - 2, (changes["threshold"] or size) - 1)))
    return Setting(make_terms(size, active=active, **changes), faults, draw(st.booleans()))
