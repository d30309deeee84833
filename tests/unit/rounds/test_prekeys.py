"""Prekeys of rounds in two trips: how old they may be, what the server stores, and for whom they are."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.support.cast import identity_for
from tests.support.rounds import ME, Population, Stage, make_roster

from coterie.cohorts.ledger import Ledger, Outcome
from coterie.cohorts.memory import MemoryFile
from coterie.cohorts.prekey_stock import PrekeyStock
from coterie.cohorts.roster import Client
from coterie.errors import ConfigError, LocalProtocolError, PeerProtocolError, PrekeyRefused
from coterie.rounds import Floor, Member
from coterie.rounds.prekeys import MOST_OFFERED, OLDEST_DAYS, PrekeyStore, Verified, population_of
from coterie.secagg import Step, ThreatMode, messages
from coterie.secagg.prekeys import rules
from coterie.secagg.prekeys.messages import PREKEYS, MaskedContribution, Prekey, PrekeyOffer
from coterie.transports.faults import Fault, FaultKind, Faults

ACTIVE = ThreatMode.ACTIVE_SERVER
DAY = 86_400


# Age.


def test_old_prekeys_are_refused(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    now = [1_800_000_000.0]
    for member in stage.members.values():
        member._clock = lambda: now[0]
        member.offer(renew=True)
    with pytest.raises(PrekeyRefused, match="used or discarded"):  # those it was invited with are discarded
        stage.members[ME].answer(stage.inbox[ME])
    stage.population = Stage.processes(stage)
    stage.members = stage.population.members
    for member in stage.members.values():
        member._clock = lambda: now[0]
        member._floor = Floor(prekey_days=30)
        member.offer(renew=True)
    invited = stage.open(1).invite()
    now[0] += 31 * DAY
    with pytest.raises(PeerProtocolError, match="too old"):
        stage.members[ME].answer(invited[ME])
    now[0] -= 2 * DAY
    stage.members[ME].answer(invited[ME])


def test_prekeys_are_replaced_long_before_they_are_refused(tmp_path: Path) -> None:
    """A client that kept offering old prekeys used to end every round, because all others refused the book."""
    stage = Stage(tmp_path)
    member, now = stage.members[ME], [1_800_000_000.0]
    member._clock, member._floor = (lambda: now[0]), Floor(prekey_days=30)
    first = messages.decode(member.offer(renew=True), PrekeyOffer, ME, None).prekeys
    now[0] += 14 * DAY
    assert messages.decode(member.offer(), PrekeyOffer, ME, None).prekeys == first
    now[0] += 2 * DAY
    replaced = messages.decode(member.offer(), PrekeyOffer, ME, None).prekeys
    assert len(replaced) == PREKEYS
    assert not set(replaced) & set(first)
    with pytest.raises(PrekeyRefused, match="used or discarded"):
        stage.memory.prekey_secret(first[0].key)


def test_a_contribution_brings_no_old_prekeys(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    now = [1_800_000_000.0]
    prekeys = stage.population.coordinator.prekeys
    assert prekeys is not None
    for name, member in stage.members.items():
        member._clock, member._floor = (lambda: now[0]), Floor(prekey_days=30)
        prekeys.offer(name, member.offer(renew=True))
    invited = stage.open(2).invite()
    now[0] += 16 * DAY
    reply = messages.decode(stage.members[ME].answer(invited[ME]), MaskedContribution, ME, None)
    assert [prekey.issued for prekey in reply.prekeys] == [int(now[0])] * PREKEYS


def test_a_limit_on_age_needs_a_clock(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.members[ME]._floor = Floor()
    with pytest.raises(ConfigError, match="no clock"):
        stage.members[ME].answer(stage.inbox[ME])
    with pytest.raises(ConfigError, match="must be above 0"):
        Floor(prekey_days=0)


# The server's store.


def make_store(ledger: Ledger, size: int = 6, cohort: int = 6) -> tuple[PrekeyStore, PrekeyStock, Population]:
    stock = PrekeyStock()
    population = Population(make_roster(size), ledger, cohort=cohort, mode=ACTIVE, two_trips=True, stock=stock)
    return PrekeyStore(population.roster, stock), stock, population


def offer_all(store: PrekeyStore, population: Population) -> None:
    """Let every client offer its prekeys."""
    for name in population.roster.names:
        store.offer(name, population.members[name].offer())


def with_prekeys(reply: bytes, prekeys: Sequence[Prekey]) -> bytes:
    """Return a contribution with other prekeys."""
    contribution = messages.decode(reply, MaskedContribution, ME, None)
    return messages.encode(msgspec.structs.replace(contribution, prekeys=tuple(prekeys)))


def make_full_store(ledger: Ledger) -> tuple[PrekeyStock, Population]:
    """Make a store that the coordinator uses, to which everybody has offered prekeys."""
    store, stock, population = make_store(ledger)
    population.coordinator.prekeys = store
    offer_all(store, population)
    return stock, population


def test_clients_without_prekeys_sit_out_until_they_offer_some(ledger: Ledger) -> None:
    store, stock, population = make_store(ledger, 12, 9)
    population.coordinator.prekeys = store
    everybody = np.ones(12, bool)
    skipped = population.coordinator.open(1, everybody, np.random.default_rng(0)).result
    assert skipped.outcome is Outcome.SKIPPED
    assert skipped.reason == "too few clients are available; 12 clients sit out without prekeys"
    silent = {population.roster.names[client] for client in population.roster.circles[0]}
    for name in population.roster.names:
        if name not in silent:
            store.offer(name, population.members[name].offer())
    result = population.play(2)
    assert set(result.revealed) == set(population.roster.names) - silent
    assert stock.counts() == dict.fromkeys(result.revealed, PREKEYS)  # the contributions brought new ones
    assert not store.stocked(sorted(silent)).any()


def test_prekeys_of_lost_contributions_are_tried_again(ledger: Ledger) -> None:
    """Otherwise invitations without a contribution would leave a client without prekeys."""
    stock, population = make_full_store(ledger)
    for number in range(1, 2 * PREKEYS + 1):
        faults = Faults(rules=(Fault(FaultKind.DROP, Step.ADVERTISE),))  # nobody is there to get the invitation
        assert population.play(number, faults=faults).outcome is Outcome.ABORTED_BEFORE_REVEAL
    assert stock.fresh(ME) == 0
    assert population.play(number + 1).outcome is Outcome.COMPLETED


def test_replies_that_are_lost_cost_a_prekey_and_the_next_ones_bring_it_back(ledger: Ledger) -> None:
    stock, population = make_full_store(ledger)
    lost = Faults(rules=(Fault(FaultKind.DROP, Step.CONTRIBUTE, (ME,)),))
    for number in range(1, PREKEYS):
        population.play(number, faults=lost)
        assert stock.fresh(ME) == PREKEYS - number
    assert ME in population.play(PREKEYS).attendance.survivors
    assert stock.fresh(ME) == PREKEYS


def offer_of(population: Population, name: str = ME) -> PrekeyOffer:
    return messages.decode(population.members[name].offer(), PrekeyOffer, name, None)


def test_an_offer_is_checked(ledger: Ledger) -> None:
    store, stock, population = make_store(ledger)
    good = offer_of(population)
    replace = msgspec.structs.replace
    first, *others = good.prekeys
    for bad, reason in (
        (replace(good, terms=bytes(32)), "another population"),
        (replace(good, prekeys=(replace(first, signature=None), *others)), "not signed"),
        (replace(good, prekeys=(replace(first, issued=7), *others)), "bad prekey"),
        (replace(good, prekeys=(replace(first, key=bytes(32)), *others)), "low order"),
        (replace(good, prekeys=offer_of(population, "client-03").prekeys), "bad prekey"),
        (replace(good, prekeys=good.prekeys * MOST_OFFERED), "the most is"),
    ):
        with pytest.raises(PeerProtocolError, match=reason):
            store.offer(ME, messages.encode(bad))
    with pytest.raises(PeerProtocolError, match="not on the roster"):
        store.offer("stranger", messages.encode(good))
    with pytest.raises(PeerProtocolError, match="not a PrekeyOffer"):
        store.offer(ME, b"garbage")
    assert stock.counts() == {}
    store.offer(ME, messages.encode(good))
    assert stock.counts() == {ME: PREKEYS}


def test_what_is_offered_again_is_verified_once_and_what_changed_is_refused(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each contribution brings the three remaining prekeys. They used to be verified again in every round."""
    verified: Verified = {}
    _, stock, population = make_store(ledger)
    checked: list[bytes] = []
    check = rules.check_prekey

    def checks(identity: bytes, population: bytes, client: str, prekey: Prekey) -> None:
        checked.append(prekey.key)
        check(identity, population, client, prekey)

    monkeypatch.setattr(rules, "check_prekey", checks)
    offered = offer_of(population)
    for _ in range(2):  # a store for each round
        store = PrekeyStore(population.roster, stock, verified=verified)
        store.offer(ME, messages.encode(offered))
    assert checked == [prekey.key for prekey in offered.prekeys]
    first, *others = offered.prekeys
    for forged in (
        msgspec.structs.replace(first, issued=first.issued + 1),
        msgspec.structs.replace(first, signature=others[0].signature),
    ):
        with pytest.raises(PeerProtocolError, match="bad prekey"):
            store.offer(ME, messages.encode(msgspec.structs.replace(offered, prekeys=(forged, *others))))
    with pytest.raises(PeerProtocolError, match="bad prekey"):  # another client's are not verified for this one
        store.offer(population.roster.names[1], messages.encode(offered))


def test_the_server_checks_dates(ledger: Ledger) -> None:
    """Other clients refuse a book with an old prekey, and one from the future would never become old."""
    _, stock, population = make_store(ledger)
    now = [1_800_000_000.0]
    store = PrekeyStore(population.roster, stock, clock=lambda: now[0])
    member = population.members[ME]
    for days, fine in ((-2.0, False), (-0.9, True), (0.0, True), (OLDEST_DAYS - 1, True), (OLDEST_DAYS + 1, False)):
        member._clock = lambda moment=now[0] - days * DAY: moment
        offer = member.offer(renew=True)
        if fine:
            store.offer(ME, offer)
            assert store.stocked([ME]).all()
        else:
            with pytest.raises(PeerProtocolError, match=r"days ago by its date.*Is its clock right"):
                store.offer(ME, offer)
    member._clock = lambda: now[0]
    store.offer(ME, member.offer(renew=True))
    now[0] += (OLDEST_DAYS + 1) * DAY
    assert not store.stocked([ME]).any()
    assert stock.counts() == {}


def test_prekeys_that_were_in_an_invitation_stay_taken_when_they_are_offered_again(ledger: Ledger) -> None:
    """A second run invited a client with the prekey of the first."""
    store, stock, population = make_store(ledger)
    good = offer_of(population)
    store.offer(ME, messages.encode(good))
    taken = stock.take([ME])[ME]
    store.offer(ME, messages.encode(good))
    assert stock.fresh(ME) == PREKEYS - 1
    assert stock.take([ME])[ME] != taken


def test_a_prekey_that_another_run_used_meanwhile_is_no_sign_of_a_restored_disk(ledger: Ledger) -> None:
    """Two runs at once: the contribution to the first was made before the second used a prekey that it offers."""
    store, stock, population = make_store(ledger)
    other = PrekeyStore(population.roster, stock)
    offer_all(store, population)
    population.coordinator.prekeys = store
    first = population.coordinator.open(1, np.ones(6, bool), np.random.default_rng(0))
    replies = {name: population.members[name].answer(message) for name, message in first.invite().items()}
    population.coordinator.prekeys = other
    second = population.coordinator.open(2, np.ones(6, bool), np.random.default_rng(0))
    for name, message in second.invite().items():
        assert second.receive(name, population.members[name].answer(message)) is None
    second.close()
    for name, reply in replies.items():
        assert first.receive(name, reply) is None
    first.close()
    assert first._session().rejected == []
    assert set(stock.counts().values()) == {PREKEYS - 1}  # all that were offered, without the one that was used
    # A contribution to a later session has no such excuse.
    population.coordinator.prekeys = store
    third = population.coordinator.open(3, np.ones(6, bool), np.random.default_rng(0))
    old = messages.decode(replies[ME], MaskedContribution, ME, None).prekeys
    for name, message in third.invite().items():
        reply = population.members[name].answer(message)
        if name == ME:
            reply = with_prekeys(reply, old)
        assert third.receive(name, reply) is None
    third.close()
    (rejected,) = third._session().rejected
    assert "restored from a backup or cloned" in rejected.reason


def test_a_key_that_another_client_offered_is_refused(ledger: Ledger) -> None:
    """Two clients that offered one key stopped every round they were invited to together."""
    _, stock, population = make_store(ledger)
    store = PrekeyStore(population.roster, stock, signed=False)
    good = offer_of(population)
    store.offer(ME, messages.encode(good))
    with pytest.raises(PeerProtocolError, match="another client offered"):
        store.offer("client-03", messages.encode(good))
    with pytest.raises(PeerProtocolError, match="one key twice"):
        store.offer(ME, messages.encode(msgspec.structs.replace(good, prekeys=good.prekeys[:1] * 2)))
    assert stock.counts() == {ME: PREKEYS}


def test_a_used_key_is_known_although_the_client_replaced_its_stock(ledger: Ledger) -> None:
    store, stock, population = make_store(ledger)
    first, *others = offer_of(population).prekeys
    assert store.refill({ME: (first, *others)}) == {}
    assert store.refill({ME: others}) == {}  # the client says hello between its contribution and the end of the step
    stock.mark_used({ME: first.key})
    assert isinstance(store.refill({ME: (first, *others)})[ME], PrekeyRefused)
    assert stock.counts() == {}, "a client that was restored is left out until it makes new prekeys"


def test_bad_prekeys_beside_a_good_contribution_are_rejected_alone(ledger: Ledger) -> None:
    stock, population = make_full_store(ledger)
    opened = population.coordinator.open(1, np.ones(6, bool), np.random.default_rng(0))
    for name, message in opened.invite().items():
        reply = population.members[name].answer(message)
        if name == ME:
            sent = messages.decode(reply, MaskedContribution, name, None).prekeys
            reply = with_prekeys(reply, [msgspec.structs.replace(prekey, issued=7) for prekey in sent])
        assert opened.receive(name, reply) is None
    opened.close()
    (rejected,) = opened._session().rejected
    assert (rejected.sender, rejected.step) == (ME, Step.CONTRIBUTE)
    assert "bad prekey" in rejected.reason
    assert stock.counts()[ME] == PREKEYS - 1


def test_the_stock_survives_a_restart_of_the_server(ledger: Ledger, tmp_path: Path) -> None:
    population = make_store(ledger)[2]
    with PrekeyStock(tmp_path / "prekeys.sqlite") as stock:
        PrekeyStore(population.roster, stock).offer(ME, population.members[ME].offer())
    with PrekeyStock(tmp_path / "prekeys.sqlite") as stock:
        assert PrekeyStore(population.roster, stock).stocked([ME, "client-03"]).tolist() == [True, False]


def test_a_client_whose_disk_was_restored_is_noticed_and_makes_new_prekeys(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    backup = stage.path.read_bytes()
    for number in range(2, PREKEYS + 2):
        stage.until(Step.DONE)
        stage.round = stage.open(number)
        stage.inbox = stage.round.invite()
    prekeys = stage.population.coordinator.prekeys
    assert prekeys is not None
    stage.population.file.close()
    stage.path.write_bytes(backup)
    restored = stage.processes().members[ME]
    with pytest.raises(PrekeyRefused, match="restored from a backup or cloned"):
        prekeys.offer(ME, restored.offer())
    with pytest.raises(PrekeyRefused, match="does not have: if its disk was restored"):
        restored.answer(stage.inbox[ME])  # with a prekey that was made after the backup
    prekeys.offer(ME, restored.offer(renew=True))
    restored.answer(stage.open(PREKEYS + 2).invite()[ME])


def test_a_server_whose_stock_was_restored_is_refused_until_clients_offer_again(tmp_path: Path) -> None:
    with PrekeyStock(tmp_path / "prekeys.sqlite") as stock, Ledger.open(tmp_path / "ledger.db") as ledger:
        population = Population(make_roster(6), ledger, cohort=6, mode=ACTIVE, two_trips=True)
        store = PrekeyStore(population.roster, stock)
        population.coordinator.prekeys = store
        offer_all(store, population)
        backup = (tmp_path / "prekeys.sqlite").read_bytes()
        assert population.play(1).outcome is Outcome.COMPLETED
    (tmp_path / "prekeys.sqlite").write_bytes(backup)
    with PrekeyStock(tmp_path / "prekeys.sqlite") as stock, Ledger.open(tmp_path / "ledger.db") as ledger:
        store = PrekeyStore(population.roster, stock)
        population.coordinator.ledger, population.coordinator.prekeys = ledger, store
        assert population.play(2).outcome is Outcome.ABORTED_BEFORE_REVEAL
        assert all("used or discarded before" in refusal.reason for refusal in population.carrier.report.refusals)
        offer_all(store, population)
        assert population.play(3).outcome is Outcome.COMPLETED


def test_two_trips_need_a_store(ledger: Ledger) -> None:
    population = make_store(ledger)[2]
    population.coordinator.prekeys = None
    with pytest.raises(ConfigError, match="store of prekeys"):
        population.play(1)


# The population that prekeys are for.


def test_prekeys_outlive_changes_of_the_roster(ledger: Ledger) -> None:
    """They are signed for the first roster, whichever version is trusted later."""
    first = make_roster(6)
    newcomers = [Client(f"client-{number:02}", identity_for(f"client-{number:02}").public) for number in (6, 7, 8)]
    second = first.join(newcomers[:1])
    third = second.join(newcomers[1:])
    file = MemoryFile(":memory:")
    memory = file.of(first.clients[0])
    memory.trust(first)
    assert memory.population == population_of(first) == first.digest
    memory.trust(second)
    assert memory.population == population_of(second) == first.digest
    memory.trust(third)
    assert memory.population == first.digest
    with pytest.raises(ConfigError, match="does not show the first"):
        population_of(third)
    assert PrekeyStore(third, PrekeyStock(), population=first.digest).population == first.digest
    # A newcomer is shown all versions; one that saw the last alone cannot tell.
    shown = MemoryFile(":memory:").of(newcomers[0])
    shown.trust(first, second, third)
    assert shown.population == first.digest
    blind = MemoryFile(":memory:").of(newcomers[0])
    blind.trust(third)
    with pytest.raises(PeerProtocolError, match="show it all versions"):
        _ = blind.population
    with pytest.raises(PeerProtocolError, match="never shown a roster"):
        _ = MemoryFile(":memory:").of(newcomers[1]).population


def test_a_member_without_memory_keeps_prekeys_for_one_session() -> None:
    member = Member("a", lambda _: np.zeros(1, np.uint16), identity=identity_for("a"))
    offered = messages.decode(member.offer(), PrekeyOffer, "a", None)
    assert messages.decode(member.offer(), PrekeyOffer, "a", None) == offered
    assert len(offered.prekeys) == PREKEYS
    renewed = messages.decode(member.offer(renew=True), PrekeyOffer, "a", None)
    assert not set(renewed.prekeys) & set(offered.prekeys)
    with pytest.raises(LocalProtocolError, match="in no session"):
        member.park()
