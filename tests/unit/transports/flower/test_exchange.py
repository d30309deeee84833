from collections.abc import Iterable

import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from tests.support.flower import Answer, Deliver, FakeGrid, FakeNode, make_app
from tests.support.flower_faults import Clock, Fault, FaultyGrid, http_error, schedules

from coterie.errors import CarrierError
from coterie.transports.flower.exchange import Exchange, Reply


def echo(message: Message) -> Message:
    return Message(message.content, reply_to=message)


def failing(code: int, times: int, src_node_id: int = 1) -> Deliver:
    """Fail this number of times with an error that does not name the node, like the errors of the SuperLink itself."""
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


def test_every_reply_is_delivered_once() -> None:
    replies = ask(lambda message, _answer: echo(message), nodes=5)
    assert sorted(reply.node for reply in replies) == list(range(5))
    assert all(reply.records is not None for reply in replies)


@pytest.mark.parametrize(("look", "pause"), [(0.0, 0.01), (0.001, 0.02), (0.2, 0.05)])
def test_fast_polls_are_repeated_sooner(look: float, pause: float) -> None:
    """With pauses of 50 ms, a trip of a simulation would wait 25 ms on average for a poll, which takes 1 ms."""
    clock = Clock()

    class Grid(FakeGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            clock.now += look
            return list(super().pull_messages(list(message_ids)[:1]))  # one reply each time

    exchange = Exchange(
        Grid(dict.fromkeys(range(4), FakeNode(make_app(), {})), lambda message, _answer: echo(message)),
        "train",
        "1",
        clock=clock,
        sleep=clock.sleep,
    )
    assert len(list(exchange.ask({number: RecordDict() for number in range(4)}, 60))) == 4
    assert clock.slept == pytest.approx([pause] * 3)


@pytest.mark.parametrize("code", [0, 3, 4, 5, 8])
def test_a_lost_message_is_sent_again_whatever_node_the_error_comes_from(code: int) -> None:
    (reply,) = ask(failing(code, times=2), nodes=1)
    assert reply.records is not None


def test_an_empty_reply_is_a_failure_of_its_node() -> None:
    def deliver(message: Message, _answer: Answer) -> Message:
        reply = echo(message)
        reply.__dict__["_content"] = None
        return reply

    (reply,) = ask(deliver, nodes=1)
    assert (reply.records, reply.reason) == (None, "sent a reply with nothing in it")


@pytest.mark.parametrize(("code", "times", "said", "most"), [(8, 99, "8", 30), (6, 1, "refused", 1)])
def test_a_node_that_keeps_failing_is_given_up_and_one_that_refuses_at_once(
    code: int, times: int, said: str, most: float
) -> None:
    clock = Clock()
    (reply,) = ask(failing(code, times), nodes=1, clock=clock)
    assert reply.records is None
    assert said in reply.reason
    assert clock.now < most


def test_a_missing_node_has_its_full_grace_period_despite_repeated_errors() -> None:
    clock, grid = Clock(), FakeGrid({0: FakeNode(make_app(), {})}, failing(5, times=20))
    node = grid.nodes[0]
    clock.events += [(1.0, lambda: grid.nodes.clear()), (20.0, lambda: grid.nodes.update({0: node}))]
    (reply,) = Exchange(grid, "train", "1", clock=clock, sleep=clock.sleep).ask({0: RecordDict()}, 300)
    assert reply.records is not None


def test_the_deadline_ends_the_wait() -> None:
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
    assert len(seen) == 2
    assert max(seen) <= 9


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


def test_a_node_that_connects_late_is_asked_when_it_connects() -> None:
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


def ask_faulty(grid: FaultyGrid, seconds: float = 600) -> list[Reply]:
    clock = Clock()
    requests = {node: RecordDict({"number": ConfigRecord({"node": node})}) for node in grid.nodes}
    return list(Exchange(grid, "train", "1", clock=clock, sleep=clock.sleep).ask(requests, seconds))


def faulty(
    schedule: list[Fault | None], deliver: Deliver | None = None, *, by_content: bool = True, forgets: bool = False
) -> FaultyGrid:
    nodes = {number: FakeNode(make_app(), {}) for number in range(3)}
    echoing = deliver or (lambda message, _answer: echo(message))
    return FaultyGrid(nodes, schedule, echoing, by_content=by_content, forgets=forgets)


@given(schedule=schedules(longest=12), by_content=st.booleans(), forgets=st.booleans())
def test_every_node_is_answered_once_whichever_call_fails(
    schedule: list[Fault | None], by_content: bool, forgets: bool
) -> None:
    replies = ask_faulty(faulty(schedule, by_content=by_content, forgets=forgets))
    assert sorted(reply.node for reply in replies) == [0, 1, 2]
    for reply in replies:
        assert reply.records is not None, reply.reason
        assert reply.records.config_records["number"]["node"] == reply.node


@given(failures=st.lists(st.builds(Fault, done=st.booleans()), min_size=1, max_size=5))
def test_a_request_that_got_through_in_a_push_that_failed_is_one_request(failures: list[Fault]) -> None:
    grid = faulty([*failures])
    ask_faulty(grid)
    asked = [message.metadata.dst_node_id for message in grid.sent]
    assert sorted(asked) == [0, 1, 2]


@pytest.mark.parametrize("by_content", [True, False])
def test_a_reply_to_a_request_of_a_push_that_failed_is_taken(by_content: bool) -> None:
    """Requests that were sent are answered only once; the node does not answer a second copy."""
    answered: set[int] = set()

    def once(message: Message, _answer: Answer) -> Message | None:
        known = message.metadata.dst_node_id in answered
        answered.add(message.metadata.dst_node_id)
        return None if known else echo(message)

    replies = ask_faulty(faulty([Fault(done=True)], once, by_content=by_content))
    assert [reply.reason for reply in replies] == [""] * 3


@pytest.mark.parametrize("forgets", [True, False])
def test_a_reply_that_a_failed_pull_had_taken_is_asked_for_again(forgets: bool) -> None:
    grid = faulty([None, *[Fault(done=True)] * 5], forgets=forgets)
    replies = ask_faulty(grid)
    assert all(reply.records is not None for reply in replies)
    assert len(grid.sent) > 3


def test_replies_lost_repeatedly_are_not_blamed_on_their_nodes() -> None:
    """The SuperLink forgets a request whose reply was fetched, and the first five pulls with replies fail."""

    class Lossy(FaultyGrid):
        left = 5

        def _pull(self, message_ids: list[str]) -> list[Message]:
            replies = super()._pull(message_ids)
            if self.left and any(reply.has_content() for reply in replies):
                self.left -= 1
                raise http_error(500)
            return replies

    nodes = {number: FakeNode(make_app(), {}) for number in range(3)}
    grid = Lossy(nodes, [], lambda message, _answer: echo(message), forgets=True)
    replies = ask_faulty(grid)
    assert grid.left == 0
    assert [reply.reason for reply in replies] == [""] * 3


@pytest.mark.parametrize("seconds", [2, 9, 40, 400])
def test_a_superlink_that_fails_until_time_is_up_ends_the_run(seconds: float) -> None:
    clock = Clock()
    grid = faulty([Fault("sqlite-locked")] * 10_000)
    exchange = Exchange(grid, "train", "1", clock=clock, sleep=clock.sleep)
    with pytest.raises(CarrierError, match="database is locked"):
        list(exchange.ask({0: RecordDict()}, seconds))
    assert seconds <= clock.now <= seconds + 0.2


def test_a_failure_at_the_end_of_a_step_only_makes_replies_late() -> None:
    clock = Clock()
    grid = faulty([], lambda _message, _answer: None)
    clock.events.append((55.0, lambda: setattr(grid, "_schedule", iter([Fault()] * 1000))))
    (reply,) = Exchange(grid, "train", "1", clock=clock, sleep=clock.sleep).ask({0: RecordDict()}, 60)
    assert grid.failures > 1
    assert reply.reason == "did not answer within 60 s"


def test_a_permanent_error_is_raised_at_once() -> None:
    class Broken(FakeGrid):
        def pull_messages(self, message_ids: object) -> list[Message]:
            raise ValueError("a bug")

    clock = Clock()
    grid = Broken({0: FakeNode(make_app(), {})}, lambda message, _answer: echo(message))
    with pytest.raises(ValueError, match="a bug"):
        list(Exchange(grid, "train", "1", clock=clock, sleep=clock.sleep).ask({0: RecordDict()}, 60))
    assert clock.now == 0
