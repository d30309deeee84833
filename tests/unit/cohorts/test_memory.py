"""A client's own record: it answers once per session, and never where its circle would be split."""

import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.cohorts.memory import Answer, ClientRecord, clients_digest
from coterie.errors import ConfigError, PeerProtocolError

CIRCLE = ("ann", "bob", "cid")
OTHERS = ("dan", "eve")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ann.db"


def opened(path: Path) -> ClientRecord:
    return ClientRecord.open(path, client="ann", circle=CIRCLE, promised=3)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.binary(min_size=1, max_size=1), st.sets(st.sampled_from(CIRCLE + OTHERS))), max_size=8))
def test_answers_whole_circles_once_per_session(requests: list[tuple[bytes, set[str]]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "ann.db"
        expected: list[Answer] = []
        for session, aggregated in requests:
            whole = aggregated.intersection(CIRCLE) in (set(), set(CIRCLE))
            if whole and session not in [answer.session for answer in expected]:
                opened(path).answer(session, aggregated)
                expected.append(Answer(session, clients_digest(aggregated), "ann" in aggregated))
            else:
                with pytest.raises(PeerProtocolError):
                    opened(path).answer(session, aggregated)
        assert opened(path).answers() == expected


def test_the_refusal_says_who_is_missing(path: Path) -> None:
    with pytest.raises(PeerProtocolError, match="separate ann's circle: without bob, cid"):
        opened(path).answer(b"\x01", ["ann", "dan"])
    with pytest.raises(PeerProtocolError, match="separate ann's circle: without ann"):
        opened(path).answer(b"\x01", ["bob", "cid"])
    assert opened(path).answers() == []


def test_a_second_answer_is_refused_whatever_is_asked(path: Path) -> None:
    opened(path).answer(b"\xab", CIRCLE)
    for aggregated in (CIRCLE, OTHERS, ()):
        with pytest.raises(PeerProtocolError, match="session ab was already answered"):
            opened(path).answer(b"\xab", aggregated)


def test_of_many_at_once_one_answers(path: Path) -> None:
    opened(path)
    outcomes: list[bool] = []

    def answer() -> None:
        try:
            opened(path).answer(b"\x01", CIRCLE)
        except PeerProtocolError:
            outcomes.append(False)
        else:
            outcomes.append(True)

    threads = [threading.Thread(target=answer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False, False, False, True]


def test_the_circle_is_pinned(path: Path) -> None:
    opened(path)
    ClientRecord.open(path, client="ann", circle=list(reversed(CIRCLE)), promised=3)
    for changed in (("ann", "bob", "dan"), (*CIRCLE, "dan")):
        with pytest.raises(PeerProtocolError, match="not the one it joined with"):
            ClientRecord.open(path, client="ann", circle=changed, promised=3)
    with pytest.raises(ConfigError, match="belongs to ann"):
        ClientRecord.open(path, client="bob", circle=CIRCLE, promised=3)


def test_an_unsafe_circle_is_never_joined(path: Path) -> None:
    with pytest.raises(PeerProtocolError, match="cannot hide a client among 4"):
        ClientRecord.open(path, client="ann", circle=CIRCLE, promised=4)
    with pytest.raises(PeerProtocolError, match="does not contain it"):
        ClientRecord.open(path, client="zoe", circle=CIRCLE, promised=3)
    assert not path.exists()


def test_an_unusable_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot use the record"):
        opened(tmp_path / "no" / "directory.db")


def test_the_digest_ignores_order_and_nothing_else() -> None:
    assert clients_digest(["a", "b"]) == clients_digest(("b", "a", "a"))
    assert clients_digest(["ab"]) != clients_digest(["a", "b"])
