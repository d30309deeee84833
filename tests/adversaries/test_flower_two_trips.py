"""A lying server on Flower switches protocols, repeats books and sends requests out of order, and is refused.

Each test names the rule. The rules of the two-trip protocol are switched off one by one in ``test_prekey_search.py``.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from flwr.app import ConfigRecordValues, Message, RecordDict
from flwr.serverapp.strategy import FedAvg
from tests.support.flower import Answer, initial_arrays, make_app, make_grid
from tests.support.flower import identity as identity
from tests.support.homes import home as home

from coterie.cohorts.memory import ClientMemory
from coterie.cohorts.roster import Client, Roster
from coterie.deployment import responder
from coterie.deployment.engine import HELLO, STEP
from coterie.deployment.node import Node, NodeSettings
from coterie.deployment.roster_folder import RosterFolder
from coterie.secagg import messages
from coterie.secagg.prekeys import PrekeyBook
from coterie.secagg.prekeys.book import is_book, is_book_message
from coterie.secagg.prekeys.messages import PrekeyOffer, SurvivorList
from coterie.transports.flower import PrivateStrategy, private_mod
from coterie.transports.flower.records import pack, payload_of, without_ours

T = TypeVar("T")
VICTIM, NAME, NODES = 102, "partition-2", 6


def play(lie: Callable[[Message, Answer], Message] | None = None) -> set[str]:
    """Play one round with this lie to the victim; return the nodes that revealed shares."""

    def deliver(message: Message, answer: Answer) -> Message:
        return lie(message, answer) if lie and message.metadata.dst_node_id == VICTIM else answer(message)

    grid = make_grid(make_app([private_mod]), NODES, deliver)
    kept = PrivateStrategy(FedAvg(fraction_evaluate=0.0), deadline=1, empty_rounds=0, resume=False)
    kept.start(grid, initial_arrays(), 1, timeout=1)
    assert kept.grid is not None
    return set(kept.grid.results[-1].attendance.revealers)


def ask_after_book(ask: Callable[[Message, Answer, Message], T]) -> tuple[bool, list[T]]:
    """Let the server ask the victim something between the trips, knowing its reply to the book.

    Return whether the victim revealed shares nevertheless, and what ``ask`` returned.
    """
    found: list[T] = []

    def lie(message: Message, answer: Answer) -> Message:
        reply = answer(message)
        if is_book(sent(message)):
            found.append(ask(message, answer, reply))
        return reply

    return NAME in play(lie), found


def changed(message: Message, payload: bytes, app: RecordDict | None = None) -> Message:
    """Return a request like this one with another message of the protocol."""
    about = message.metadata
    content = pack(payload, {"kind": STEP}, without_ours(message.content) if app is None else app)
    return Message(content, about.dst_node_id, about.message_type, group_id=about.group_id)


def hello(message: Message, *rosters: Roster, renew: bool = False) -> Message:
    """Return a request for an introduction, with rosters, that asks for prekeys."""
    shown = [roster.to_bytes() for roster in rosters]
    header: dict[str, ConfigRecordValues] = {"kind": HELLO, "prekeys": True, "renew": renew, "rosters": shown}
    about = message.metadata
    return Message(pack(b"", header), about.dst_node_id, about.message_type, group_id=about.group_id)


def sent(message: Message) -> bytes:
    return payload_of(message.content, "server")


def trusted() -> Roster | None:
    node = Node(NodeSettings.read({"partition-id": 2}))
    with node.memory() as file:
        return file.of(node.client).roster


@pytest.mark.parametrize("papers_first", [True, False])
def test_the_same_terms_by_both_protocols_are_entered_once(papers_first: bool) -> None:
    """Rule: a session is entered only once, by either protocol. Two answers would be two rounds in one row."""
    refused: list[bool] = []

    def both(message: Message, answer: Answer) -> Message:
        if not is_book(sent(message)):
            return answer(message)
        terms = PrekeyBook.read(sent(message)).terms
        papers = changed(message, messages.encode(messages.Invitation(terms.digest, terms.to_bytes())), RecordDict())
        first, second = (papers, message) if papers_first else (message, papers)
        replies = [answer(first), answer(second)]
        refused.append(not replies[0].has_error() and replies[1].has_error())
        return replies[int(papers_first)]

    assert (NAME in play(both)) is not papers_first
    assert refused == [True]


def test_a_papers_session_between_the_trips_ends_the_two_trip_session() -> None:
    """Rule: entering a session erases the states of the run's earlier ones. The victim only drops out of the round."""

    def switch(message: Message, answer: Answer, _reply: Message) -> bool:
        terms = msgspec.structs.replace(PrekeyBook.read(sent(message)).terms, session=bytes(32), threshold=None)
        papers = messages.encode(messages.Invitation(terms.digest, terms.to_bytes()))
        return answer(changed(message, papers, RecordDict())).has_content()

    assert ask_after_book(switch) == (False, [True])


def test_a_prekey_is_used_for_one_contribution_in_any_book() -> None:
    """Rule: a prekey is used for one book, ever; another session with it, in this run or the next, is refused."""

    def reuse(message: Message, answer: Answer, reply: Message) -> bool:
        book = PrekeyBook.read(sent(message))
        other = PrekeyBook(msgspec.structs.replace(book.terms, session=bytes(32)), book.prekeys)
        refused = answer(changed(message, other.invitation())).has_error()
        assert answer(changed(message, book.invitation())).content == reply.content  # the same book: the same bytes
        return refused

    assert ask_after_book(reuse) == (True, [True])


def test_a_repeated_book_gets_the_same_bytes_with_any_model() -> None:
    """Rule: one contribution for each book. A second one, for a crafted model, would reveal a difference of inputs."""

    def repeat(message: Message, answer: Answer, reply: Message) -> bool:
        crafted = without_ours(message.content)
        crafted["arrays"] = initial_arrays()
        crafted["extra"] = initial_arrays()
        return bool(answer(changed(message, sent(message), crafted)).content == reply.content)

    assert ask_after_book(repeat) == (True, [True])


@pytest.mark.parametrize("run", [None, 99])
def test_only_one_survivor_list_is_answered_even_after_a_restart_of_the_node(run: int | None) -> None:
    """Rule: one list for each book, in any run. Every message is a new process, so the rule needs the node's disk."""
    refused: list[bool] = []

    def two_lists(message: Message, answer: Answer) -> Message:
        if not is_book_message(sent(message)):
            return answer(message)
        good = messages.decode(sent(message), SurvivorList, "server", None)
        members = sorted(messages.decode_members(good.survivors, NODES, "server"))
        marks = {client: good.marks[16 * at : 16 * (at + 1)] for at, client in enumerate(members)}
        roster = trusted()
        assert roster is not None
        circle = {client.name for client in roster.circle_of(NAME) or ()}
        gone = next(number for number, name in enumerate(roster.names) if name not in circle)
        marks.pop(gone)
        other = SurvivorList(
            good.terms, messages.encode_members(marks, NODES), b"".join(marks[at] for at in sorted(marks))
        )
        reply = answer(message)
        second = changed(message, messages.encode(other))
        if run is not None:
            second.metadata.__dict__["_run_id"] = run
        refused.append(answer(second).has_error())
        assert answer(message).content == reply.content
        return reply

    assert NAME in play(two_lists)
    assert refused == [True]


def test_prekeys_can_be_requested_at_any_time_and_reveal_nothing() -> None:
    """Rule: prekeys are public. Renewing them between the trips erases the victim's state, so it only drops out."""

    def renew(message: Message, answer: Answer, _reply: Message) -> int:
        again = payload_of(answer(hello(message, renew=True)).content, NAME)
        offer = messages.decode(msgspec.msgpack.decode(again)[7], PrekeyOffer, NAME, None)
        return len(offer.prekeys)

    assert ask_after_book(renew) == (False, [4])


def test_a_request_for_an_introduction_cannot_bypass_the_operators_roster_settings(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule: rosters that come with this request pass the checks of those that come with an invitation."""

    def ask(message: Message, answer: Answer, *rosters: Roster) -> bool:
        return answer(hello(message, *rosters)).has_error()

    play()
    roster = RosterFolder(home / "server" / "rosters").latest
    assert roster is not None
    strangers = roster.join([Client("eve", b"e" * 32), Client("mallory", b"m" * 32)])
    node = make_grid(make_app([private_mod]), NODES).nodes[VICTIM]
    question = Message(RecordDict(), VICTIM, "train")
    forged = msgspec.structs.replace(strangers, predecessor=bytes(32))
    assert ask(question, node.answer, forged)
    node.node_config["coterie-roster"] = "00" * 32
    assert ask(question, node.answer, strangers)
    assert trusted() == roster

    def careless(_settings: NodeSettings, memory: ClientMemory, shown: object, _vouchers: object) -> None:
        memory.trust(*(Roster.from_bytes(body) for body in shown))  # type: ignore[attr-defined]

    monkeypatch.setattr(responder, "trust_rosters", careless)
    assert not ask(question, node.answer, strangers)
    assert trusted() == strangers
