"""A client's floor: the client refuses every session whose terms are weaker than it requires."""

from dataclasses import fields, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cast import identity_for, make_terms
from tests.support.rounds import make_roster

from coterie.cohorts.roster import Client, Roster
from coterie.errors import ConfigError, PeerProtocolError
from coterie.graphs import Complete, ErdosRenyi, Harary, ThreatModel, Topology, assess
from coterie.graphs.table import is_complete
from coterie.planning.session import recommend
from coterie.rounds import Floor
from coterie.secagg import Terms, ThreatMode

ROSTER = make_roster(12)
FLOOR = Floor(ThreatMode.ACTIVE_SERVER, privacy=3, minimum=3, colluders=1, threshold=3, most_bits=32, most_length=100)


def terms_of(roster: Roster, circles: tuple[int, ...] = (0, 2), /, **changes: Any) -> Terms:  # noqa: ANN401
    """Terms as an honest coordinator makes them for these circles."""
    chosen = sorted((client, number) for number in circles for client in roster.circles[number])
    clients = [roster.clients[client] for client, _ in chosen]
    settings: dict[str, Any] = {
        "clients": tuple(client.name for client in clients),
        "identities": tuple(client.identity for client in clients),
        "circles": tuple(number for _, number in chosen),
        "mode": ThreatMode.ACTIVE_SERVER,
        "minimum": 3,
        "roster": roster.digest,
    }
    return make_terms(len(clients), **(settings | changes))


MEMBER = ROSTER.names[ROSTER.circles[0][0]]


def test_honest_terms_are_accepted() -> None:
    FLOOR.check(terms_of(ROSTER), MEMBER, ROSTER)
    Floor().check(make_terms(4), "client-00")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mode": ThreatMode.HONEST_BUT_CURIOUS, "identities": ()}, "requires active-server terms"),
        ({"minimum": 2}, "sums of 2 clients"),
        ({"colluders": 0}, "withstands 0 colluders; this client requires 1"),
        ({"threshold": 2}, "2 shares reconstruct"),
        ({"bits": 33}, "more than this client sends"),
        ({"length": 101}, "more than this client sends"),
        ({"circles": None}, "the session has no circles"),
        ({"circles": tuple(range(6))}, "not that of the roster"),
        ({"circles": (0,) * 6}, "not that of the roster"),
        ({"roster": b"another"}, "not under the roster"),
        ({"identities": tuple(identity_for(f"sybil {n}").public for n in range(6))}, "identity key"),
        ({"clients": (MEMBER, *(f"sybil-{n}" for n in range(5)))}, "not on the roster: sybil-0, sybil-1, sybil-2"),
    ],
)
def test_terms_below_the_floor_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(PeerProtocolError, match=reason) as refusal:
        FLOOR.check(terms_of(ROSTER, **changes), MEMBER, ROSTER)
    assert refusal.value.peer == "server"


def test_strangers_in_another_circle_are_refused() -> None:
    """The server leaves the client's own circle alone and makes up all the others."""
    terms = terms_of(ROSTER)
    strangers = tuple(
        key if circle == 0 else identity_for(f"sybil {name}").public
        for name, key, circle in zip(terms.clients, terms.identities, terms.circles or (), strict=True)
    )
    with pytest.raises(PeerProtocolError, match="identity key"):
        FLOOR.check(msgspec.structs.replace(terms, identities=strangers), MEMBER, ROSTER)


def test_a_retired_circle_is_not_summed_again() -> None:
    later = ROSTER.leave([ROSTER.names[ROSTER.circles[2][0]]])
    with pytest.raises(PeerProtocolError, match="retired"):
        FLOOR.check(terms_of(later), MEMBER, later)
    FLOOR.check(terms_of(later, (0, 1)), MEMBER, later)


def test_clients_that_left_are_not_summed_in_sessions_without_circles() -> None:
    alone = make_roster(6, privacy=1)
    later = alone.leave([alone.names[5]])
    Floor().check(make_terms(6, clients=alone.names, roster=alone.digest), alone.names[0], alone)
    with pytest.raises(PeerProtocolError, match=f"retired: {alone.names[5]}"):
        Floor().check(make_terms(6, clients=later.names, roster=later.digest), alone.names[0], later)
    Floor().check(make_terms(5, clients=later.names[:5], roster=later.digest), alone.names[0], later)


def test_part_of_a_circle_is_not_a_circle() -> None:
    whole = terms_of(ROSTER)
    part: dict[str, Any] = {
        "clients": whole.clients[:-1],
        "identities": whole.identities[:-1],
        "circles": (whole.circles or ())[:-1],
    }
    with pytest.raises(PeerProtocolError, match="not that of the roster"):
        FLOOR.check(terms_of(ROSTER, **part), MEMBER, ROSTER)


def test_a_roster_that_promises_less_is_refused() -> None:
    weak = make_roster(12, privacy=2)
    terms = terms_of(weak, (0, 1, 2))
    with pytest.raises(PeerProtocolError, match="promises T = 2"):
        FLOOR.check(terms, terms.clients[0], weak)


def test_without_a_roster_circles_are_counted() -> None:
    floor = Floor(privacy=3)
    floor.check(make_terms(6, circles=(0, 0, 0, 1, 1, 1)), "client-00")
    with pytest.raises(PeerProtocolError, match="a circle of fewer than 3 clients"):
        floor.check(make_terms(6, circles=(0, 0, 0, 0, 1, 1)), "client-00")


def test_a_client_refuses_terms_that_do_not_list_it() -> None:
    with pytest.raises(PeerProtocolError, match="do not list client-99"):
        Floor().check(make_terms(4), "client-99")


def test_waiting_clients_are_not_summed() -> None:
    waiting = ROSTER.join([Client("new", b"new")])
    terms = terms_of(waiting)
    joined = msgspec.structs.replace(
        terms,
        clients=(*terms.clients, "new"),
        identities=(*terms.identities, b"n" * 32),
        circles=(*(terms.circles or ()), 9),
    )
    with pytest.raises(PeerProtocolError):
        FLOOR.check(joined, MEMBER, waiting)


@pytest.mark.parametrize(
    "wrong",
    [
        {"privacy": 0},
        {"minimum": 1},
        {"threshold": 0},
        {"colluders": -1},
        {"dropout": 1},
        {"most_clients": 1},
        {"most_bits": 0},
        {"most_length": 0},
        *({field.name: float("nan")} for field in fields(Floor) if field.name != "mode"),
    ],
)
def test_impossible_floors_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Floor(**wrong)  # type: ignore[arg-type]


LOW = Floor(ThreatMode.ACTIVE_SERVER, minimum=4, colluders=4)


@pytest.mark.parametrize("topology", [Harary(20), ErdosRenyi(1.0), Complete()])
def test_a_threshold_that_colluders_reach_is_refused_whatever_the_graph_is_called(topology: Topology) -> None:
    """Each of these is the complete graph of 12 clients: four colluders would hold four shares of every secret."""
    with pytest.raises(ConfigError, match="must be above that"):
        make_terms(12, active=True, topology=topology, threshold=2, colluders=4, minimum=4)
    LOW.check(make_terms(12, active=True, topology=topology, threshold=7, colluders=4, minimum=4), "client-00")


def test_against_an_honest_but_curious_server_the_floor_counts_colluders_itself() -> None:
    floor = Floor(colluders=4)
    with pytest.raises(PeerProtocolError, match="4 shares reconstruct a secret, and 4 clients may collude"):
        floor.check(make_terms(10, threshold=4, minimum=6), "client-00")
    floor.check(make_terms(10, threshold=5, minimum=6), "client-00")


def test_a_sum_of_one_client_and_all_colluders_is_refused_in_either_mode() -> None:
    """The server would subtract their inputs, which leaves the input of this client."""
    with pytest.raises(PeerProtocolError, match="all but one may collude"):
        Floor(colluders=4).check(make_terms(5, threshold=5, minimum=5), "client-00")
    Floor(colluders=4).check(make_terms(6, threshold=5, minimum=6), "client-00")
    with pytest.raises(ConfigError, match="two honest ones are in it"):
        make_terms(5, active=True, colluders=4)


@pytest.mark.parametrize("topology", [Harary(4), ErdosRenyi(0.5)])
def test_a_sparse_graph_is_refused_unless_the_floor_allows_it(topology: Topology) -> None:
    terms = make_terms(12, topology=topology, threshold=3, minimum=6)
    with pytest.raises(PeerProtocolError, match="only the complete graph"):
        Floor().check(terms, "client-00")
    with pytest.raises(PeerProtocolError, match="must state its threshold"):
        Floor(sparse_bits=1.0).check(make_terms(12, topology=topology), "client-00")
    with pytest.raises(PeerProtocolError, match="more often than 2\\^-40"):
        Floor(sparse_bits=40, colluders=4).check(terms, "client-00")


def test_a_sparse_graph_is_accepted_if_the_clients_own_bound_is_met() -> None:
    plan = recommend(1000, 0.05, collusion=0.1, topology="harary", active=True)
    names = tuple(f"client-{number:04}" for number in range(1000))
    terms = make_terms(
        1000,
        clients=names,
        identities=tuple(number.to_bytes(32, "big") for number in range(1000)),
        mode=ThreatMode.ACTIVE_SERVER,
        topology=plan.guarantee.topology,
        threshold=plan.guarantee.threshold,
        colluders=plan.colluders,
    )
    floor = Floor(ThreatMode.ACTIVE_SERVER, colluders=100, dropout=0.05, sparse_bits=40)
    floor.check(terms, names[0])
    with pytest.raises(PeerProtocolError, match="more often"):
        replace(floor, dropout=0.3).check(terms, names[0])
    with pytest.raises(PeerProtocolError, match="more often"):
        floor.check(msgspec.structs.replace(terms, threshold=3), names[0])


@settings(max_examples=25, deadline=None)
@given(
    st.integers(60, 300),
    st.floats(0, 0.1),
    st.floats(0, 0.1),
    st.integers(1, 6),
    st.sampled_from(["harary", "erdos-renyi"]),
)
def test_planner_and_clients_agree_on_the_bound(
    clients: int, lost: float, collusion: float, circle: int, topology: str
) -> None:
    """Planned terms are accepted. Half their minimum is refused, unless it meets the bound as well."""
    plan = recommend(clients, lost, collusion=collusion, privacy=circle, topology=topology, privacy_bits=40)
    found = plan.guarantee
    names = tuple(f"client-{number:03}" for number in range(clients))
    circles = tuple(min(number // circle, clients // circle - 1) for number in range(clients))
    planned: dict[str, Any] = {"topology": found.topology, "threshold": found.threshold, "circles": circles}
    floor = Floor(colluders=plan.colluders, sparse_bits=40, threshold=1)
    floor.check(make_terms(clients, clients=names, minimum=plan.minimum, **planned), names[0])
    if is_complete(found.topology, clients):
        return
    fewer = max(plan.minimum // 2, plan.colluders + 2)
    model = ThreatModel(clients, 0.0, plan.colluders / clients, minimum=fewer)
    terms = make_terms(clients, clients=names, minimum=fewer, **planned)
    if assess(model, found.topology, found.threshold).privacy_failure_log2 > -40:
        with pytest.raises(PeerProtocolError, match=f"in sums of as few as {fewer}"):
            floor.check(terms, names[0])
    # With a dropout probability in the floor, a lower minimum is accepted.
    replace(floor, dropout=0.0).check(terms, names[0])


def test_a_default_threshold_below_the_floor_is_refused() -> None:
    with pytest.raises(
        PeerProtocolError, match="4 shares reconstruct a secret; this client requires a threshold of at least 7"
    ):
        Floor(threshold=7).check(make_terms(6), "client-00")


@pytest.mark.parametrize("topology", [Harary(2), ErdosRenyi(0.1)])
def test_on_a_sparse_graph_the_threshold_must_be_stated(topology: Topology) -> None:
    """A majority of all clients would be enough; a majority of two neighbours is not."""
    with pytest.raises(PeerProtocolError, match="must state its threshold"):
        Floor(threshold=7, sparse_bits=0).check(make_terms(20, topology=topology), "client-00")
    Floor(threshold=7, sparse_bits=0).check(make_terms(20, topology=topology, threshold=7), "client-00")
    Floor(threshold=1, sparse_bits=0).check(make_terms(20, topology=topology), "client-00")


def test_a_roster_with_circles_does_not_let_them_be_left_out() -> None:
    """It does not matter which T the client's own floor requires."""
    terms = terms_of(ROSTER, circles=None)
    with pytest.raises(PeerProtocolError, match="the session has no circles"):
        Floor().check(terms, MEMBER, ROSTER)


def test_huge_sessions_are_refused_before_anything_is_built() -> None:
    terms = make_terms(2000, clients=tuple(map(str, range(2000))))
    with pytest.raises(PeerProtocolError, match="clients; this client accepts at most"):
        Floor(most_clients=1999).check(terms, "0")


def test_on_a_sparse_graph_a_dropout_excludes_its_circle() -> None:
    names = tuple(f"client-{number:03}" for number in range(500))
    terms: dict[str, Any] = {"clients": names, "topology": Harary(48), "threshold": 25, "minimum": 52}
    floor = Floor(colluders=50, dropout=0.1, sparse_bits=40)
    floor.check(make_terms(500, **terms), names[0])
    with pytest.raises(PeerProtocolError, match="more often"):
        floor.check(make_terms(500, circles=tuple(n // 5 for n in range(500)), **terms), names[0])


def test_a_session_that_all_colluders_could_join_is_refused() -> None:
    """Ten of thirty clients collude. A session of twelve withstands four, and all ten could be invited to it."""
    floor = Floor(ThreatMode.ACTIVE_SERVER, minimum=4, colluders=10)
    with pytest.raises(PeerProtocolError, match="withstands 3 colluders; this client requires 10"):
        floor.check(make_terms(12, active=True, minimum=4), "client-00")
    floor.check(make_terms(12, active=True, minimum=4, colluders=10), "client-00")
