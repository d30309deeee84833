"""Rounds in two trips: coordinator, members, prekeys and what is on disk before anything leaves."""

from collections.abc import Callable, Set
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.cast import flip
from tests.support.rounds import ME, Population, Stage, in_sum, make_roster

from coterie.cohorts.circles import circle_sizes
from coterie.cohorts.ledger import Ledger, Outcome
from coterie.crypto import shamir
from coterie.errors import Blame, PeerProtocolError, PrekeyRefused, ThresholdError, WrongShares
from coterie.graphs.topology import Complete
from coterie.rounds import Floor
from coterie.secagg import Step, ThreatMode, messages
from coterie.secagg.prekeys.book import PrekeyBook
from coterie.secagg.prekeys.messages import PREKEYS, PrekeyOffer, SurvivorList, SurvivorProof
from coterie.secagg.protocols import SessionProtocol, two_trips_fit
from coterie.transports.faults import Fault, FaultKind, Faults, dropouts

ACTIVE = ThreatMode.ACTIVE_SERVER
MODES = pytest.mark.parametrize("mode", list(ThreatMode))
DAY = 86_400


def confirming(folder: Path) -> Stage:
    """A session of twelve, in which so many are lost that survivors are confirmed."""
    stage = Stage(folder, size=12)
    circles = [
        [stage.population.roster.names[client] for client in circle] for circle in stage.population.roster.circles
    ]
    lost = [circle[0] for circle in circles if ME not in circle][:2]
    return stage.until(Step.CONFIRM, tuple(lost))


@MODES
@pytest.mark.parametrize("lost", [0.0, 0.05])
def test_the_sum_is_that_of_the_papers_protocol(tmp_path: Path, mode: ThreatMode, lost: float) -> None:
    results = []
    for two_trips in (False, True):
        with Ledger.open(tmp_path / f"{two_trips}.db") as ledger:
            population = Population(make_roster(24), ledger, mode=mode, two_trips=two_trips)
            results.append([population.play(number, faults=dropouts(lost, number)) for number in range(1, 7)])
            assert (Step.MASK in population.carrier.report.steps) is not two_trips
    completed = 0
    for papers, other in zip(*results, strict=True):
        assert papers.attendance.selected == other.attendance.selected
        assert papers.attendance.survivors == other.attendance.survivors
        if papers.value is None or other.value is None:
            continue
        assert papers.revealed == other.revealed
        assert (papers.value.total == other.value.total).all()
        completed += 1
    assert completed >= 4


@MODES
def test_the_row_is_in_the_ledger_before_any_client_reveals_or_confirms(ledger: Ledger, mode: ThreatMode) -> None:
    roster = make_roster(12)
    for number, broken in enumerate((0, 2), 1):
        lost = [roster.names[circle[0]] for circle in roster.circles[:broken]]
        population = Population(roster, ledger, cohort=12, mode=mode, two_trips=True)
        opened = population.coordinator.open(number, np.ones(12, bool), np.random.default_rng(0))
        inbox, steps = opened.invite(), []
        while inbox:
            steps.append(opened.step)
            assert (number in dict(ledger.rows())) is (opened.step is not Step.CONTRIBUTE)
            for name, message in inbox.items():
                if name not in lost:
                    opened.receive(name, population.members[name].answer(message))
            inbox = opened.close()
        assert opened.result.outcome is Outcome.COMPLETED
        confirm = [Step.CONFIRM] if lost and mode is ACTIVE else []
        assert steps == [Step.CONTRIBUTE, *confirm, Step.REVEAL]
        assert in_sum(population.roster, opened.result.value.total) == set(opened.result.revealed)  # type: ignore[union-attr]


def test_a_round_that_too_few_confirm_is_recorded(ledger: Ledger) -> None:
    population = Population(make_roster(12), ledger, cohort=12, mode=ACTIVE, two_trips=True)
    circles = [[population.roster.names[client] for client in circle] for circle in population.roster.circles]
    gone = (circles[0][0], circles[1][0])
    faults = Faults(
        rules=(
            Fault(FaultKind.DROP, Step.CONTRIBUTE, gone),
            Fault(FaultKind.DROP, Step.CONFIRM, population.roster.names),
        )
    )
    result = population.play(1, faults=faults)
    assert result.outcome is Outcome.ABORTED_AFTER_REVEAL
    assert "0 clients confirmed the survivors; 8 are needed" in result.reason
    assert set(result.dropped) == set(gone)


# A client's disk.


@MODES
def test_one_transaction_uses_the_prekey_and_keeps_the_reply(tmp_path: Path, mode: ThreatMode) -> None:
    stage = Stage(tmp_path, mode)
    book = PrekeyBook.read(stage.inbox[ME])
    key = book.prekeys[book.terms.index[ME]].key
    secret = stage.memory.prekey_secret(key)
    assert secret in stage.path.read_bytes()
    reply = stage.members[ME].answer(stage.inbox[ME])
    assert secret not in stage.path.read_bytes()
    with pytest.raises(PrekeyRefused, match="used or discarded before"):
        stage.memory.prekey_secret(key)
    answered = stage.memory.last_answer(book.digest)
    assert answered is not None
    assert answered.reply == reply
    assert len(stage.memory.prekeys()) == PREKEYS


@MODES
def test_a_repeated_invitation_gets_the_same_bytes_also_after_a_restart(tmp_path: Path, mode: ThreatMode) -> None:
    stage = Stage(tmp_path, mode)
    reply = stage.members[ME].answer(stage.inbox[ME])
    made: list[object] = []
    again = stage.processes().members[ME]
    again._contribute = lambda terms: made.append(terms) or np.zeros(4, np.uint16)  # type: ignore[func-returns-value]
    assert stage.members[ME].answer(stage.inbox[ME]) == again.answer(stage.inbox[ME]) == reply
    assert made == []
    invitation, others = stage.inbox[ME], stage.until(Step.REVEAL)
    others.members[ME].answer(stage.inbox[ME])
    with pytest.raises(PeerProtocolError, match="contributed to before"):
        stage.members[ME].answer(invitation)


def test_a_crash_before_the_transaction_leaves_the_prekey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path)
    before = stage.memory.prekeys()

    def crash(*_: object, **__: object) -> None:
        raise OSError("no power")

    with monkeypatch.context() as patched:
        patched.setattr("coterie.cohorts.prekey_tables.contribute", crash)
        with pytest.raises(OSError, match="no power"):
            stage.members[ME].answer(stage.inbox[ME])
    assert stage.memory.prekeys() == before
    assert stage.memory.last_answer(PrekeyBook.read(stage.inbox[ME]).digest) is None
    stage.until(Step.DONE)
    assert ME in stage.round.result.revealed


@MODES
def test_a_new_process_for_every_message_needs_the_memory_alone(tmp_path: Path, mode: ThreatMode) -> None:
    stage = Stage(tmp_path, mode)
    while stage.inbox:
        for name, message in stage.inbox.items():
            stage.round.receive(name, stage.processes().members[name].answer(message))
        stage.inbox = stage.round.close()
    assert len(stage.round.result.revealed) == 6


def test_a_confirming_client_needs_the_memory_alone(tmp_path: Path) -> None:
    stage = confirming(tmp_path)
    signature = stage.members[ME].answer(stage.inbox[ME])
    assert stage.processes().members[ME].answer(stage.inbox[ME]) == signature
    stage.until(Step.REVEAL, tuple(set(stage.population.roster.names) - set(stage.inbox) | {""}))
    shares = stage.members[ME].answer(stage.inbox[ME])
    restarted = stage.processes().members[ME]
    assert restarted.answer(stage.inbox[ME]) == shares


def test_another_book_with_the_same_prekey_is_refused(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    book = PrekeyBook.read(stage.inbox[ME])
    stage.members[ME].answer(stage.inbox[ME])
    other = PrekeyBook(msgspec.structs.replace(book.terms, session=bytes(32)), book.prekeys)
    for member in (stage.members[ME], stage.processes().members[ME]):
        with pytest.raises(PrekeyRefused, match="used or discarded before"):
            member.answer(other.invitation())


def test_another_book_of_the_same_session_is_refused(tmp_path: Path) -> None:
    """The session is entered once, also with another prekey."""
    stage = Stage(tmp_path)
    book = PrekeyBook.read(stage.inbox[ME])
    stage.members[ME].answer(stage.inbox[ME])
    offered = messages.decode(stage.members[ME].offer(), PrekeyOffer, ME, None).prekeys
    prekeys = list(book.prekeys)
    prekeys[book.terms.index[ME]] = offered[0]
    with pytest.raises(PeerProtocolError, match="entered before"):
        stage.members[ME].answer(PrekeyBook(book.terms, tuple(prekeys)).invitation())
    assert len(stage.memory.prekeys()) == PREKEYS  # and the prekey is still there


def told_without(message: bytes, lost: int) -> bytes:
    """Announce the same survivors but one."""
    good = messages.decode(message, SurvivorList, "server", None)
    members = sorted(messages.decode_members(good.survivors, 12, "server"))
    marks = {client: good.marks[16 * at : 16 * (at + 1)] for at, client in enumerate(members)}
    marks.pop(lost)
    other = SurvivorList(
        good.terms, messages.encode_members(marks, 12), b"".join(marks[client] for client in sorted(marks))
    )
    return messages.encode(other)


def with_another_list(folder: Path) -> tuple[Stage, bytes]:
    """Play up to the survivor list; return another list too, without a client of another circle."""
    stage = Stage(folder, size=12).until(Step.REVEAL)
    circle = next(c for c in stage.population.roster.circles if stage.population.roster.names.index(ME) not in c)
    return stage, told_without(stage.inbox[ME], circle[0])


def test_one_survivor_list_is_answered_for_a_book_ever(tmp_path: Path) -> None:
    stage, other = with_another_list(tmp_path)
    parked = stage.members[ME].park()
    stage.members[ME].answer(stage.inbox[ME])
    for member in (stage.members[ME], stage.processes().members[ME]):
        with pytest.raises(PeerProtocolError, match="session that it has left"):
            member.answer(other)
        member.resume(parked)  # the state of before, from a backup of its own
        with pytest.raises(PeerProtocolError, match="other survivors than those"):
            member.answer(other)
    # Repeated, the same list gets the same shares.
    assert stage.processes().members[ME].answer(stage.inbox[ME]) == stage.members[ME].answer(stage.inbox[ME])


def test_only_the_survivor_list_that_was_signed_is_answered(tmp_path: Path) -> None:
    stage = confirming(tmp_path)
    parked = stage.members[ME].park()
    stage.members[ME].answer(stage.inbox[ME])
    good = messages.decode(stage.inbox[ME], SurvivorList, "server", None)
    there = frozenset(messages.decode_members(good.survivors, 12, "server"))
    names = stage.population.roster.names
    mates = next(set(circle) for circle in stage.population.roster.circles if names.index(ME) in circle)
    stranded = next(client for client in sorted(there - mates) if not whole(stage, client, there))
    for member in (stage.members[ME], stage.processes().members[ME]):
        member.resume(parked)
        with pytest.raises(PeerProtocolError, match="other survivors than those"):
            member.answer(told_without(stage.inbox[ME], stranded))
        member.resume(parked)
        direct = messages.encode(msgspec.structs.replace(good, envelopes=()))
        with pytest.raises(ThresholdError, match="must be confirmed"):
            member.answer(direct)


def whole(stage: Stage, client: int, there: Set[int]) -> bool:
    return any(client in circle and set(circle) <= there for circle in stage.population.roster.circles)


def test_states_are_erased_when_they_are_no_longer_needed(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    book = PrekeyBook.read(stage.inbox[ME]).digest
    stage.members[ME].answer(stage.inbox[ME])
    answered = stage.memory.last_answer(book)
    assert answered is not None
    assert answered.state is not None
    stage.members[ME].leave()
    erased = stage.memory.last_answer(book)
    assert erased is not None
    assert erased.state is erased.reply is None
    assert answered.state[64:128] not in stage.path.read_bytes()
    with pytest.raises(PeerProtocolError, match="contributed to before"):
        stage.members[ME].answer(stage.inbox[ME])
    second = stage.open(2).invite()
    stage.members["client-03"].answer(stage.inbox["client-03"])
    stage.members["client-03"].answer(second["client-03"])
    memory = stage.members["client-03"]._memory
    assert memory is not None
    before = memory.last_answer(book)
    assert before is not None
    assert before.state is None


def test_a_restored_session_is_not_answered_again_once_prekeys_are_renewed(tmp_path: Path) -> None:
    """A backup made between the two trips holds a state. If it answered a second survivor list, inputs would leak."""
    stage, other = with_another_list(tmp_path)
    backup = stage.path.read_bytes()
    stage.members[ME].answer(stage.inbox[ME])
    stage.population.file.close()
    stage.path.write_bytes(backup)
    restored = stage.processes().members[ME]
    restored.offer(renew=True)
    for message in (other, stage.inbox[ME]):
        with pytest.raises(PeerProtocolError, match="session that it has left"):
            restored.answer(message)


def test_a_session_of_the_papers_protocol_erases_what_two_trips_left(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    book = PrekeyBook.read(stage.inbox[ME]).digest
    stage.members[ME].answer(stage.inbox[ME])
    stage.memory.enter(bytes(16), stage.population.roster.digest)
    erased = stage.memory.last_answer(book)
    assert erased is not None
    assert erased.state is erased.reply is None


def test_nothing_secret_is_shown(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.members[ME].answer(stage.inbox[ME])
    answered = stage.memory.last_answer(PrekeyBook.read(stage.inbox[ME]).digest)
    assert "(secret)" in repr(answered)
    assert repr(stage.members[ME]) == "<Member 'client-02', Contributed>"
    (kept,) = stage.members[ME]._make_prekeys(1)
    assert kept.secret.hex() not in repr(kept)
    assert repr(kept.secret) not in repr(kept)


# Damaged and foreign messages.


@pytest.mark.parametrize("damage", [lambda m: flip(m, 300), lambda m: m[:-3], lambda m: m[:40]])
def test_a_damaged_message_leaves_no_trace(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    stage = Stage(tmp_path)
    for step in (Step.CONTRIBUTE, Step.REVEAL):
        stage.until(step)
        with pytest.raises(PeerProtocolError):
            stage.members[ME].answer(damage(stage.inbox[ME]))
    stage.until(Step.DONE)
    assert ME in stage.round.result.attendance.revealers


@pytest.mark.parametrize("kind", [SurvivorList, SurvivorProof])
def test_messages_of_unknown_books_are_refused(tmp_path: Path, kind: type[messages.Message]) -> None:
    stage = Stage(tmp_path)
    empty: tuple[object, ...] = (b"", b"") if kind is SurvivorList else ((), ())
    with pytest.raises(PeerProtocolError, match="session that it has left"):
        stage.members[ME].answer(messages.encode(kind(bytes(32), *empty)))
    with pytest.raises(PeerProtocolError, match="not a message of a session"):
        stage.members[ME].answer(b"\x93\x0c" + bytes(20))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=80), first=st.sampled_from([b"\x93\x0a", b"\x94\x0c", b"\x93\x0e", b""]))
def test_random_bytes_are_the_servers_fault(ledger: Ledger, data: bytes, first: bytes) -> None:
    population = Population(make_roster(6), ledger, cohort=6, mode=ACTIVE, two_trips=True)
    with pytest.raises(PeerProtocolError):
        population.members[ME].answer(first + data)


def test_the_floor_the_content_and_the_roster_are_checked_before_a_prekey_is_used(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    member = stage.members[ME]
    before = stage.memory.prekeys()
    member.content = b"another model"
    with pytest.raises(PeerProtocolError, match="other work than the session"):
        member.answer(stage.inbox[ME])
    member.content = None
    member._floor = Floor(minimum=40, prekey_days=None)
    with pytest.raises(PeerProtocolError, match="requires at least 40"):
        member.answer(stage.inbox[ME])
    member._floor = Floor(prekey_days=None)
    member._identity = None
    with pytest.raises(PeerProtocolError, match="another identity key"):
        member.answer(stage.inbox[ME])
    assert stage.memory.prekeys() == before


def test_the_floor_bounds_what_a_client_deals_and_by_which_protocol(tmp_path: Path) -> None:
    """A server that invites many clients makes each of them deal and send n * n / T shares."""
    stage = Stage(tmp_path)
    book, member = PrekeyBook.read(stage.inbox[ME]), stage.members[ME]
    shares = len(book.terms.clients) * len(book.circles)
    before = stage.memory.prekeys()
    member._floor = Floor(prekey_days=None, most_shares=shares - 1)
    with pytest.raises(PeerProtocolError, match=f"would deal {shares} shares; it deals at most {shares - 1}"):
        member.answer(stage.inbox[ME])
    member._floor = Floor(prekey_days=None, protocol="papers")
    with pytest.raises(PeerProtocolError, match="uses the protocol two-trips; this client accepts only papers"):
        member.answer(stage.inbox[ME])
    assert stage.memory.prekeys() == before
    member._floor = Floor(prekey_days=None, protocol="two-trips", most_shares=shares)
    invitation = messages.encode(messages.Invitation(book.terms.digest, book.terms.to_bytes()))
    with pytest.raises(PeerProtocolError, match="uses the protocol papers; this client accepts only two-trips"):
        member.answer(invitation)
    member.answer(stage.inbox[ME])


@given(clients=st.integers(2, 400), privacy=st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_every_session_that_takes_two_trips_by_default_is_within_the_default_floor(clients: int, privacy: int) -> None:
    """Clients count what they would deal; the server compares n * n / T."""
    sizes = circle_sizes(clients, min(privacy, clients))
    if two_trips_fit(clients, int(sizes.min()), Complete()):
        Floor().check_protocol(SessionProtocol.TWO_TRIPS, clients * len(sizes))


@pytest.mark.parametrize("papers_first", [True, False])
def test_one_session_is_entered_by_one_protocol(tmp_path: Path, papers_first: bool) -> None:
    """A server proposes the same terms by both protocols: whichever comes second is refused."""
    stage = Stage(tmp_path)
    terms = PrekeyBook.read(stage.inbox[ME]).terms
    papers = messages.encode(messages.Invitation(terms.digest, terms.to_bytes()))
    first, second = (papers, stage.inbox[ME]) if papers_first else (stage.inbox[ME], papers)
    stage.members[ME].answer(first)
    for member in (stage.members[ME], stage.processes().members[ME]):
        with pytest.raises(PeerProtocolError, match="entered before"):
            member.answer(second)


def test_a_result_names_a_member_that_deals_wrong_shares_to_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round ends after its row is written, with the member's name in a typed error."""
    honest, stage = shamir.split, Stage(tmp_path)

    def split(secrets: list[bytes], threshold: int, points: list[int], *rest: Any) -> list[tuple[bytes, ...]]:  # noqa: ANN401
        return honest(secrets, len(points) + 1, points, *rest)  # no set of shares opens anything

    for name, message in stage.inbox.items():
        with monkeypatch.context() as patch:
            if name == ME:
                patch.setattr(shamir, "split", split)
            assert stage.round.receive(name, stage.members[name].answer(message)) is None
    stage.inbox = stage.round.close()
    stage.until(Step.DONE)
    result = stage.round.result
    assert isinstance(result.error, WrongShares)
    assert result.blame == result.error.blame == Blame((ME,))
    assert result.outcome is Outcome.ABORTED_AFTER_REVEAL
