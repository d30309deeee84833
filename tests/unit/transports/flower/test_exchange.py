from collections.abc import Callable

import pytest
from flwr.app import Error, Message, RecordDict
from tests.support.flower import Deliver, FakeGrid, FakeNode, make_app

from coterie.transports.flower.exchange import Exchange, Reply

Answer = Callable[[Message], Message]


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.001)
        for at, event in [due for due in self.events if due[0] <= self.now]:
            self.events.remove((at, event))
            event()


def echo(message: Message) -> Message:
    return Message(message.content, reply_to=message)


def failing(code: int, times: int, src_node_id: int = 1) -> Deliver:
    """Fail so many times with an error that, as the SuperLink's own, does not name the node."""
    left = {"times": times}

    def deliver(message: Message, _answer: Answer) -> Message | None:
        if left["times"] > 0:
            left["times"] -= 1
            reply = Message(Error(code, "lost"), reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = src_node_id
            return reply
        return echo(message)

    return deliver


def ask(deliver: Deliver, nodes: int = 2, seconds: float = 60, clock: Clock | None = None) -> list[Reply]:
    clock = clock or Clock()
    grid = FakeGrid({number: FakeNode(make_app(), {}) for number in range(nodes)}, deliver)
    exchange = Exchange(grid, "train", "1", clock=clock, sleep=clock.sleep)
    return list(exchange.ask({number: RecordDict() for number in range(nodes)}, seconds))


def test_everybody_who_answers_is_told_once() -> None:
    replies = ask(lambda message, _answer: echo(message), nodes=5)
    assert sorted(reply.node for reply in replies) == list(range(5))
    assert all(reply.records is not None for reply in replies)


@pytest.mark.parametrize("code", [0, 3, 4, 5, 8])
def test_a_lost_message_is_sent_again_whatever_node_the_error_comes_from(code: int) -> None:
    (reply,) = ask(failing(code, times=2), nodes=1)
    assert reply.records is not None


def test_a_node_that_keeps_failing_is_given_up() -> None:
    clock = Clock()
    (reply,) = ask(failing(8, times=99), nodes=1, clock=clock)
    assert reply.records is None
    assert "8" in reply.reason
    assert clock.now < 30


def test_a_node_that_is_away_has_its_grace_however_often_the_superlink_says_so() -> None:
    clock, grid = Clock(), FakeGrid({0: FakeNode(make_app(), {})}, failing(5, times=20))
    node = grid.nodes[0]
    clock.events += [(1.0, lambda: grid.nodes.clear()), (20.0, lambda: grid.nodes.update({0: node}))]
    (reply,) = Exchange(grid, "train", "1", clock=clock, sleep=clock.sleep).ask({0: RecordDict()}, 300)
    assert reply.records is not None


def test_a_refusal_is_final() -> None:
    clock = Clock()
    (reply,) = ask(failing(6, times=1), nodes=1, clock=clock)
    assert reply.records is None
    assert "refused" in reply.reason
    assert clock.now < 1


def test_nobody_is_waited_for_beyond_the_deadline() -> None:
    clock = Clock()
    replies = ask(lambda message, _: None if message.metadata.dst_node_id else echo(message), seconds=9, clock=clock)
    assert [reply.node for reply in replies if reply.records is None] == [1]
    assert clock.now == pytest.approx(9, abs=0.1)


def test_a_message_lives_no_longer_than_its_step() -> None:
    seen: list[float] = []

    def look(message: Message, _answer: Answer) -> Message:
        seen.append(message.metadata.ttl)
        return echo(message)

    ask(look, seconds=9)
    assert all(ttl <= 9 for ttl in seen)


def test_a_node_that_went_away_is_given_up_before_the_deadline() -> None:
    clock = Clock()
    grid = FakeGrid({0: FakeNode(make_app(), {})}, lambda _message, _answer: None)
    clock.events.append((2.0, lambda: grid.nodes.clear()))
    (reply,) = Exchange(grid, "train", "1", clock=clock, sleep=clock.sleep).ask({0: RecordDict()}, 3600)
    assert reply.reason == "went away"
    assert clock.now < 60


@pytest.mark.parametrize(("grace", "comes_back"), [(30, False), (60, True)])
def test_a_node_that_is_back_after_44_seconds_is_waited_for_if_the_grace_is_longer(
    grace: float, comes_back: bool
) -> None:
    clock, grid = Clock(), FakeGrid({0: FakeNode(make_app(), {})}, failing(5, times=1))
    node = grid.nodes[0]
    clock.events += [(0.5, lambda: grid.nodes.clear()), (44.0, lambda: grid.nodes.update({0: node}))]
    (reply,) = Exchange(grid, "train", "1", grace, clock=clock, sleep=clock.sleep).ask({0: RecordDict()}, 600)
    assert (reply.records is not None) is comes_back


def test_a_node_that_is_not_there_yet_is_asked_as_soon_as_it_is() -> None:
    clock = Clock()
    grid = FakeGrid({}, lambda message, _answer: echo(message))
    clock.events.append((8.0, lambda: grid.nodes.update({0: FakeNode(make_app(), {})})))
    (reply,) = Exchange(grid, "train", "1", clock=clock, sleep=clock.sleep).ask({0: RecordDict()}, 60)
    assert reply.records is not None


def test_a_reply_to_something_else_is_ignored() -> None:
    clock = Clock()

    class Confused(FakeGrid):
        def pull_messages(self, message_ids: object) -> list[Message]:
            stray = Message(RecordDict(), 0, "train")
            stray.metadata.__dict__["_reply_to_message_id"] = "another"
            return [stray]

    grid = Confused({0: FakeNode(make_app(), {})})
    (reply,) = Exchange(grid, "train", "1", clock=clock, sleep=clock.sleep).ask({0: RecordDict()}, 5)
    assert reply.records is None
