"""A member: it answers each message once, whatever is replayed, restored or sent twice."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.support.cast import flip
from tests.support.interpreter import printed_by
from tests.support.rounds import ME, Stage

from coterie.cohorts.memory import MemoryFile
from coterie.cohorts.roster import Client
from coterie.errors import LocalProtocolError, PeerProtocolError, ThresholdError
from coterie.rounds import Member
from coterie.secagg import Step, ThreatMode, messages

MODES = pytest.mark.parametrize("mode", list(ThreatMode))


def stage_of(folder: Path, mode: ThreatMode = ThreatMode.HONEST_BUT_CURIOUS) -> Stage:
    """A round of the papers' protocol."""
    return Stage(folder, mode, two_trips=False)


STEPS = {
    ThreatMode.HONEST_BUT_CURIOUS: (Step.SHARE, Step.MASK, Step.REVEAL),
    ThreatMode.ACTIVE_SERVER: (Step.SHARE, Step.MASK, Step.CONFIRM, Step.REVEAL),
}


@MODES
def test_a_round_of_members_gives_the_sum(tmp_path: Path, mode: ThreatMode) -> None:
    stage = stage_of(tmp_path, mode)
    assert stage.population.play(1).value is not None
    assert not any(member.waiting for member in stage.members.values())


@MODES
def test_a_replayed_invitation_is_refused_also_after_a_restart(tmp_path: Path, mode: ThreatMode) -> None:
    stage = stage_of(tmp_path, mode)
    invitation = stage.inbox[ME]
    stage.until(Step.SHARE)
    with pytest.raises(PeerProtocolError, match="entered before"):
        stage.members[ME].answer(invitation)
    with pytest.raises(PeerProtocolError, match="entered before"):
        stage.processes().members[ME].answer(invitation)
    stage.until(Step.DONE)  # and its own session goes on
    assert ME in stage.round.result.revealed


@MODES
def test_a_state_restored_from_a_backup_answers_nothing(tmp_path: Path, mode: ThreatMode) -> None:
    for number, step in enumerate(STEPS[mode]):
        folder = tmp_path / str(number)
        folder.mkdir()
        stage = stage_of(folder, mode).until(step)
        backup, message = stage.members[ME].park(), stage.inbox[ME]
        stage.members[ME].answer(message)
        for member in (stage.members[ME], stage.processes().members[ME]):
            member.resume(backup)
            with pytest.raises(PeerProtocolError, match="answered before"):
                member.answer(message)


def test_without_memory_a_restored_state_would_answer_twice(tmp_path: Path) -> None:
    """Two inputs that are masked from one state reveal their difference, which the memory prevents."""
    stage = stage_of(tmp_path).until(Step.MASK)
    member = stage.members[ME]
    member._memory = None
    backup, message = member.park(), stage.inbox[ME]
    terms = stage.round._server.terms if stage.round._server else None
    assert terms is not None

    def masked(vector: np.ndarray) -> np.ndarray:
        stage.population.vectors = {**stage.population.vectors, ME: vector}
        member.resume(backup)
        sent = messages.decode(member.answer(message), messages.MaskedInput, "test", terms.digest)
        return terms.ring.unpack(sent.payload, terms.length)

    first, second = np.arange(4, dtype=np.uint16), np.array([9, 9, 9, 9], np.uint16)
    assert (masked(first) - masked(second)).tolist() == (first - second).tolist()


@MODES
@pytest.mark.parametrize("damage", [lambda message: flip(message, 100), lambda _: b"", lambda message: message[:-3]])
def test_a_damaged_message_leaves_no_trace(tmp_path: Path, mode: ThreatMode, damage: Callable[[bytes], bytes]) -> None:
    stage = stage_of(tmp_path, mode)
    for step in (Step.ADVERTISE, *STEPS[mode]):
        stage.until(step)
        with pytest.raises(PeerProtocolError):
            stage.members[ME].answer(damage(stage.inbox[ME]))
    stage.until(Step.DONE)
    assert ME in stage.round.result.attendance.revealers


def test_members_can_be_parked_between_messages(tmp_path: Path) -> None:
    stage = stage_of(tmp_path).until(Step.SHARE)
    for name in list(stage.members):
        parked = stage.members[name].park()
        stage.members[name] = stage.processes().members[name]
        stage.members[name].resume(parked)
    stage.until(Step.DONE)
    assert len(stage.round.result.revealed) == 6


def test_a_state_belongs_to_one_client(tmp_path: Path) -> None:
    stage = stage_of(tmp_path).until(Step.SHARE)
    with pytest.raises(LocalProtocolError, match="not a state of client-03"):
        stage.members["client-03"].resume(stage.members[ME].park())
    stage.members[ME].leave()
    with pytest.raises(LocalProtocolError, match="in no session"):
        stage.members[ME].park()


def test_a_new_invitation_ends_an_unfinished_session(tmp_path: Path) -> None:
    stage = stage_of(tmp_path).until(Step.MASK)
    second = stage.open(2)
    stage.members[ME].answer(second.invite()[ME])
    with pytest.raises(PeerProtocolError):
        stage.members[ME].answer(stage.inbox[ME])


@MODES
def test_a_message_after_the_end_is_blamed_on_the_server(tmp_path: Path, mode: ThreatMode) -> None:
    """It is an ordinary refusal, which transports expect: a server cannot end a client's program in this way."""
    stage = stage_of(tmp_path, mode).until(Step.REVEAL)
    message = stage.inbox[ME]
    stage.until(Step.DONE)
    for more in (message, b"", b"garbage"):
        with pytest.raises(PeerProtocolError):
            stage.members[ME].answer(more)
    stage.members[ME].answer(stage.open(2).invite()[ME])


def test_the_repr_of_a_member_shows_no_secret(tmp_path: Path) -> None:
    stage = stage_of(tmp_path).until(Step.MASK)
    assert repr(stage.members[ME]) == "<Member 'client-02', Shared>"
    assert repr(stage.population.file.of(stage.population.roster.clients[2])) == "<ClientMemory of 'client-02'>"


def test_a_client_that_was_never_shown_a_roster_refuses_the_session(tmp_path: Path) -> None:
    stage = stage_of(tmp_path)
    newcomer = Member(ME, lambda _: np.zeros(4, np.uint16), memory=MemoryFile(":memory:").of(Client(ME)))
    with pytest.raises(PeerProtocolError, match="without ever showing it a roster"):
        newcomer.answer(stage.inbox[ME])


def test_no_input_is_made_for_a_refused_message(tmp_path: Path) -> None:
    stage = stage_of(tmp_path).until(Step.MASK)
    made: list[object] = []
    member = stage.members[ME]
    member._contribute = lambda terms: made.append(terms) or np.zeros(4, np.uint16)  # type: ignore[func-returns-value]
    terms = b"" if stage.round._server is None else stage.round._server.terms.digest
    nothing = messages.encode(messages.Deliveries(terms, ()))
    for garbage in (b"", b"garbage", flip(stage.inbox[ME], 77), stage.inbox["client-03"][:-1], nothing):
        with pytest.raises((PeerProtocolError, ThresholdError)):
            member.answer(garbage)
    assert made == []
    member.answer(stage.inbox[ME])
    assert len(made) == 1


def test_a_client_refuses_a_session_about_other_content(tmp_path: Path) -> None:
    stage = stage_of(tmp_path)
    stage.members[ME].content = b"the digest of another model"
    with pytest.raises(PeerProtocolError, match="other work than the session"):
        stage.members[ME].answer(stage.inbox[ME])
    stage.members[ME].content = b""
    stage.members[ME].answer(stage.inbox[ME])


def test_the_content_is_compared_again_when_a_client_makes_its_input(tmp_path: Path) -> None:
    """The server names one model in the terms, and gives another one to a new process with the deliveries."""
    stage = stage_of(tmp_path).until(Step.MASK)
    parked, message = stage.members[ME].park(), stage.inbox[ME]
    member = stage.processes().members[ME]
    member.resume(parked)
    member.content = b"the digest of another model"
    with pytest.raises(PeerProtocolError, match="other work than the session"):
        member.answer(message)
    member.content = b""
    member.answer(message)


def test_a_client_imports_nothing_heavy() -> None:
    """Some deployments start a new process for every message."""
    program = (
        "import sys; import coterie.rounds\n"
        "print(*{'sqlalchemy', 'scipy', 'torch', 'pydantic', 'typer', 'rich', 'matplotlib'} & sys.modules.keys())"
    )
    assert printed_by(program) == "\n"


def test_an_invitation_under_another_identity_key_is_refused(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, ThreatMode.ACTIVE_SERVER)
    stage.members[ME]._identity = None
    with pytest.raises(PeerProtocolError, match="another identity key"):
        stage.members[ME].answer(stage.inbox[ME])
