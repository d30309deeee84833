"""Faults of a SuperLink: a grid whose calls fail before or after they take effect, as in Flower."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import httpx
from flwr.app import Error, Message
from flwr.proto.node_pb2 import NodeInfo
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError
from tests.support.flower import Deliver, FakeGrid, FakeNode, straight

T = TypeVar("T")
UNKNOWN = 3  # Flower's code for a message that the SuperLink does not have


def http_error(status: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://superlink/PullMessages")
    response = httpx.Response(status, json={"detail": "Internal server error."}, request=request)
    return httpx.HTTPStatusError(f"{status} for url", request=request, response=response)


def locked() -> Exception:
    """Return the error of SQLAlchemy if the database of SQLite is locked."""
    error = OperationalError("UPDATE message_res", {}, sqlite3.OperationalError("database is locked"))
    error.__cause__ = error.orig
    return error


PASSING: dict[str, Callable[[], Exception]] = {
    "http-500": lambda: http_error(500),
    "http-429": lambda: http_error(429),
    "sqlite-locked": lambda: sqlite3.OperationalError("database is locked"),
    "sqlalchemy-locked": locked,
    "reset": ConnectionResetError,
    "timeout": TimeoutError,
}


class Clock:
    """A clock that advances only during sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.events: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += max(seconds, 0.001)
        for at, event in [due for due in self.events if due[0] <= self.now]:
            self.events.remove((at, event))
            event()


@dataclass(frozen=True)
class Fault:
    """A call that fails with this kind of error; ``done`` means that it has taken effect."""

    kind: str = "http-500"
    done: bool = False


def schedules(longest: int) -> st.SearchStrategy[list[Fault | None]]:
    """Generate outcomes of consecutive calls: None is a call that works, as do all calls after the last outcome."""
    fault = st.builds(Fault, st.sampled_from(sorted(PASSING)), st.booleans())
    return st.lists(st.none() | fault, max_size=longest)


class FaultyGrid(FakeGrid):
    """A grid whose calls fail by a schedule.

    If messages are named by content, a message that is pushed twice is one message, as over HTTP; otherwise each push
    makes a new one, as in a simulation. A reply that a failed call has fetched never comes again. With ``forgets``, the
    SuperLink then does not know its request any more; otherwise the request stays without an answer.
    """

    def __init__(
        self,
        nodes: Mapping[int, FakeNode],
        schedule: Iterable[Fault | None],
        deliver: Deliver = straight,
        *,
        by_content: bool = True,
        forgets: bool = False,
    ) -> None:
        super().__init__(nodes, deliver)
        self._schedule: Iterator[Fault | None] = iter(schedule)
        self._by_content, self._forgets = by_content, forgets
        self._known: set[str] = set()
        self.calls = self.failures = 0

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self._call(lambda: self._push(list(messages)), lambda: self._push(list(messages)[:1]))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self._call(lambda: self._pull(list(message_ids)))

    def get_node_ids(self) -> Iterable[int]:
        return self._call(lambda: list(self.nodes))

    def get_nodes(self) -> Iterable[NodeInfo]:
        return self._call(lambda: [NodeInfo(node_id=node) for node in self.nodes])

    def _call(self, work: Callable[[], T], half: Callable[[], object] | None = None) -> T:
        self.calls += 1
        fault = next(self._schedule, None)
        if fault is None:
            return work()
        self.failures += 1
        if fault.done:
            work()
        elif half is not None:
            half()  # one of several messages was stored when the database was found locked
        raise PASSING[fault.kind]()

    def _push(self, messages: list[Message]) -> list[str]:
        names: list[str] = []
        for message in messages:
            if not self._by_content:
                names += super().push_messages([message])
            elif message.metadata.dst_node_id in self.nodes:
                message.metadata.__dict__["_message_id"] = message.object_id
                names.append(message.object_id)
                if message.object_id not in self._known:
                    self._carry(message)
            else:
                names.append("")
            self._known.update(names)
        return names

    def _pull(self, message_ids: list[str]) -> list[Message]:
        replies: list[Message] = []
        for name in message_ids:
            if name in self.replies:
                replies.append(self.replies.pop(name))
                self._known -= {name} if self._forgets else set()
            elif name not in self._known:
                lost = Message(Error(UNKNOWN, "unknown"), reply_to=next(iter(self.sent)))
                lost.metadata.__dict__["_reply_to_message_id"] = name
                replies.append(lost)
        return replies
