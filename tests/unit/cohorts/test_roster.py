from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coterie.cohorts.circles import Circles, random_circles
from coterie.cohorts.memory import ClientMemory, MemoryFile
from coterie.cohorts.policies import Mode, MultiRound
from coterie.cohorts.roster import Client, Roster
from coterie.errors import ConfigError

NAMES = ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal"]
CLIENTS = [Client(name, name.encode()) for name in NAMES]


def founded() -> Roster:
    return Roster.found(CLIENTS, Circles.of([(0, 1, 2), (3, 4), (5, 6, 7)]), privacy=2)


def newcomers(*names: str) -> list[Client]:
    return [Client(name, name.encode()) for name in names]


def circle(roster: Roster, name: str) -> list[str] | None:
    mates = roster.circle_of(name)
    return None if mates is None else [mate.name for mate in mates]


def test_clients_are_numbered_by_name_whatever_order_they_come_in() -> None:
    again = Roster.found(reversed(CLIENTS), Circles.of([(2, 0, 1), (4, 3), (7, 6, 5)]), privacy=2)
    assert again == founded()
    assert again.digest == founded().digest
    assert Roster.found(CLIENTS, founded().usable(), np.int64(2)).digest == founded().digest  # type: ignore[arg-type]
    assert again.names == tuple(NAMES)


@pytest.mark.parametrize("name", ["\ud800", "ann\udfff", "\udc00bob"])
def test_a_name_that_cannot_be_stored_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="not valid Unicode and cannot be stored") as caught:
        founded().join([*newcomers("ida"), Client(name, b"other")])
    assert repr(name) in str(caught.value)
    str(caught.value).encode()


@pytest.mark.parametrize("privacy", [2.5, 3.0, float("inf"), "2"])
def test_a_t_that_is_no_whole_number_is_refused(privacy: Any) -> None:  # noqa: ANN401
    with pytest.raises(ConfigError, match="the T of a roster is a whole number, not "):
        Roster.found(CLIENTS, founded().usable(), privacy)


def test_only_active_circles_are_usable() -> None:
    assert list(founded().leave(["dan"]).usable()) == [(0, 1, 2), (5, 6, 7)]


def test_newcomers_wait_until_there_are_t_of_them() -> None:
    one = founded().join(newcomers("ida"))
    assert one.active == founded().active
    assert circle(one, "ida") == []
    three = one.join(newcomers("jan", "kay"))
    assert circle(three, "ida") == circle(three, "jan") == ["ida", "jan"]
    assert circle(three, "kay") == []
    assert three.circles[:3] == founded().circles


def test_clients_that_do_not_fill_a_circle_wait() -> None:
    roster = Roster(privacy=3, clients=()).join(CLIENTS)
    assert [len(members) for members in roster.circles] == [3, 3]
    assert len(roster.queue) == 2


def test_a_leaver_retires_its_circle_for_good() -> None:
    roster = founded().leave(["bob"])
    assert circle(roster, "ann") is None
    assert circle(roster, "bob") is None
    assert circle(roster, "dan") == ["dan", "eve"]
    for name in ("ann", "bob", "cid"):
        with pytest.raises(ConfigError, match="cannot be regrouped"):
            roster.join(newcomers(name, "ida"))
    assert roster.leave(["cid", "dan"]).retired == (0, 1)


def test_a_client_that_left_the_queue_may_come_back_as_the_same_client() -> None:
    left = founded().join(newcomers("ida")).leave(["ida"])
    assert circle(left, "ida") is None
    assert left.retired == ()
    back = left.join(newcomers("ida", "jan"))
    assert circle(back, "ida") == ["ida", "jan"]
    assert len(back.clients) == 10
    with pytest.raises(ConfigError, match="another identity key"):
        left.join([Client("ida", b"other")])


def test_impossible_joins_and_leaves_are_refused() -> None:
    roster = founded()
    with pytest.raises(ConfigError, match="cannot be regrouped"):
        roster.join(newcomers("ann"))
    with pytest.raises(ConfigError, match="same identity key"):
        roster.join([Client("ida", b"ann")])
    with pytest.raises(ConfigError, match="only once"):
        roster.join(newcomers("ida")).join(newcomers("ida", "ida"))
    with pytest.raises(ConfigError, match="not on the roster: ida, jan"):
        roster.leave(["jan", "ann", "ida"])


def test_every_version_names_its_predecessor_and_is_a_successor() -> None:
    first = founded()
    second = first.join(newcomers("ida", "jan"))
    third = second.leave(["ann"])
    assert (first.version, second.version, third.version) == (0, 1, 2)
    assert (second.predecessor, third.predecessor) == (first.digest, second.digest)
    assert len({roster.digest for roster in (first, second, third)}) == 3
    first.check_successor(second)
    second.check_successor(third)
    first.check_successor(third)


FIRST = founded().join(newcomers("ida", "jan")).leave(["gus"])
NEXT = FIRST.join(newcomers("kay"))
REGROUPED = ((0, 1), (2, 3, 4), (5, 6, 7), (8, 9))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 2}, "does not come after"),
        ({"predecessor": b"x" * 32}, "as predecessor"),
        ({"privacy": 1}, "promised T"),
        ({"clients": (Client("amy"), *NEXT.clients[1:])}, "renamed"),
        ({"circles": REGROUPED}, "regrouped"),
        ({"circles": NEXT.circles[:2], "retired": ()}, "regrouped"),
        ({"retired": ()}, "into use again"),
    ],
)
def test_rewritten_rosters_are_no_successors(changes: dict[str, object], reason: str) -> None:
    FIRST.check_successor(NEXT)
    with pytest.raises(ConfigError, match=reason):
        FIRST.check_successor(msgspec.structs.replace(NEXT, **changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"privacy": 0}, "at least one"),
        ({"privacy": 3}, "fewer than 3"),
        ({"version": -1}, "predecessor"),
        ({"version": 0}, "predecessor"),
        ({"predecessor": b""}, "predecessor"),
        ({"clients": (*NEXT.clients[:-1], Client("ann"))}, "same name"),
        ({"clients": (*NEXT.clients[:-1], Client("kay", b"ann"))}, "same identity"),
        ({"clients": NEXT.clients[:-1]}, "only once"),
        ({"queue": (10, 10)}, "only once"),
        ({"queue": (0,)}, "only once"),
        ({"circles": ((1, 0, 2), *NEXT.circles[1:])}, "ascending"),
        ({"retired": (4,)}, "retired"),
        ({"retired": (1, 0)}, "retired"),
        ({"retired": (1, 1)}, "retired"),
    ],
)
def test_a_roster_is_checked_whenever_it_is_made_or_read(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        msgspec.structs.replace(NEXT, **changes)
    fields = msgspec.structs.asdict(NEXT) | changes
    with pytest.raises(ConfigError, match=reason):
        Roster.from_bytes(msgspec.msgpack.encode(list(fields.values())))


def test_rosters_survive_their_bytes() -> None:
    assert Roster.from_bytes(NEXT.to_bytes()) == NEXT
    for junk in (b"", b"\xc1", b"\xa1\xff", NEXT.to_bytes()[:-1], NEXT.to_bytes() + b"\x00", b"\x90"):
        with pytest.raises(ConfigError, match="not a roster"):
            Roster.from_bytes(junk)


def test_founding_needs_circles_for_exactly_these_clients() -> None:
    for groups in ([(0, 1, 2), (3, 4)], [(0, 1, 2), (3, 4), (5, 6, 8)]):
        with pytest.raises(ConfigError, match="do not cover"):
            Roster.found(CLIENTS, Circles.of(groups), privacy=2)


class ChangingPopulation(RuleBasedStateMachine):
    """Joins, leaves and rounds in any order: no class of equal participation is ever smaller than T."""

    @initialize(privacy=st.integers(1, 4), more=st.integers(0, 12), seed=st.integers(0, 2**32 - 1))
    def found(self, privacy: int, more: int, seed: int) -> None:
        """Start with a population that need not be divisible by T."""
        self.rng = np.random.default_rng(seed)
        clients = [Client(f"{number:03}") for number in range(privacy + more)]
        self.roster = Roster.found(clients, random_circles(len(clients), privacy, self.rng), privacy)
        self.file = MemoryFile(":memory:")
        self.memories: dict[Client, ClientMemory] = {}
        self.enrol(clients)
        self.history: list[set[int]] = []

    def teardown(self) -> None:
        self.file.close()

    def enrol(self, clients: list[Client]) -> None:
        """Let newcomers see the roster for the first time."""
        for client in clients:
            self.memories[client] = self.file.of(client)
            self.memories[client].trust(self.roster)

    def change(self, roster: Roster) -> None:
        """Let everybody see the new version, and trust it."""
        self.roster.check_successor(roster)
        self.roster = roster
        for memory in self.memories.values():
            memory.trust(roster)

    @rule(count=st.integers(1, 6))
    def join(self, count: int) -> None:
        """Newcomers queue up."""
        clients = [Client(f"{len(self.roster.clients) + number:03}") for number in range(count)]
        self.change(self.roster.join(clients))
        self.enrol(clients)

    @rule(share=st.floats(0, 0.3))
    def leave(self, share: float) -> None:
        """Some clients leave, also from retired circles."""
        self.change(self.roster.leave([c.name for c in self.roster.clients if self.rng.random() < share]))

    @rule(
        dropout=st.floats(0, 0.7),
        room=st.floats(0, 1),
        mode=st.sampled_from(["uniform", "fair", "fairest"]),
        survival=st.sampled_from([1.0, 0.8]),
    )
    def select(self, dropout: float, room: float, mode: Mode, survival: float) -> None:
        """Run one round with the available clients."""
        circles = self.roster.usable()
        if not len(circles):
            return
        largest, everyone = int(circles.sizes.max()), circles.members.size
        cohort = largest + int(room * (everyone - largest))
        available = self.rng.random(len(self.roster.clients)) >= dropout
        frequencies = np.zeros(available.size, dtype=np.int64)
        for row in self.history:
            frequencies[list(row)] += 1
        policy = MultiRound(circles, cohort, mode, survival)
        selected = policy.select(available, frequencies, self.rng).tolist()
        self.history.append(set(selected))
        taking_part = {self.roster.names[number] for number in selected}
        session = len(self.history).to_bytes(16, "big")
        for number in selected:
            memory = self.memories[self.roster.clients[number]]
            memory.enter(session)
            memory.agree(session, 1, taking_part)

    @invariant()
    def classes_of_equal_participation_have_t_members(self) -> None:
        """Count identical non-zero columns of the participation matrix."""
        columns: dict[tuple[bool, ...], int] = {}
        for number in range(len(self.roster.clients)):
            column = tuple(number in row for row in self.history)
            columns[column] = columns.get(column, 0) + 1
        assert all(size >= self.roster.privacy for column, size in columns.items() if any(column))


ChangingPopulation.TestCase.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)
TestChangingPopulation = ChangingPopulation.TestCase


def test_a_roster_without_a_recipe_keeps_the_bytes_it_had_before_there_were_recipes() -> None:
    old = bytes.fromhex("97029292a3616e6ec403616e6e92a3626f62c403626f6291920001909000c400")
    roster = Roster.from_bytes(old)
    assert roster.recipe == roster.recipe_digest == b""
    assert roster.to_bytes() == old
    assert roster.digest.hex() == "74ea3d50b2bbcd4208be21376c69ce5b1ee8c464a4e66d7f6b2944769909aa8e"


def test_the_recipe_is_part_of_the_digest_of_a_roster_and_permanent() -> None:
    circles = Circles.of([(0, 1, 2), (3, 4), (5, 6, 7)])
    roster = Roster.found(CLIENTS, circles, privacy=2, recipe=b"weigh by examples")
    assert roster.digest != founded().digest
    assert Roster.from_bytes(roster.to_bytes()) == roster
    later = roster.join(newcomers("ida")).leave(["ann"])
    assert later.recipe == roster.recipe
    for other in b"", b"weigh by age":
        with pytest.raises(ConfigError, match="the recipe changed"):
            roster.check_successor(msgspec.structs.replace(later, recipe=other))
    with pytest.raises(ConfigError, match="the recipe changed"):
        founded().check_successor(msgspec.structs.replace(founded().join([]), recipe=b"weigh by age"))
