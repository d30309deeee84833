"""One exchange with many nodes: requests go out, replies come back, and nothing waits for ever.

Flower's own ``send_and_receive`` sleeps three seconds between looks and lets a message live for twelve hours. Here a
request lives as long as its step. It is sent again if it was lost, or if its node went away and is back; the same
request has the same answer, so that is safe. Errors that the SuperLink makes itself do not say which node they are
about: replies are told apart by the request they answer.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from coterie.transports.flower.records import REFUSED

UNAVAILABLE = 5
NOBODY = -1
_SHORTEST, _LONGEST = 0.05, 0.5  # seconds between two looks
_LOOK_AROUND = 3.0  # seconds between two looks at who is connected
_AGAIN = 1.0  # seconds before a request that was lost is sent again
GRACE = 30.0
"""Seconds that a node which went away has to come back; to start one takes five to ten, more on a busy machine."""


@dataclass(frozen=True)
class Reply:
    """What came of a request: the records of the reply, or why there are none."""

    node: int
    records: RecordDict | None
    reason: str = ""


@dataclass(frozen=True)
class Exchange:
    """Sends requests of one kind and collects the replies."""

    grid: Grid
    message_type: str
    group: str
    grace: float = GRACE
    """Seconds without a node before it is given up, so that those that are there need not wait until time is up."""
    tries: int = 3
    """How often a request is sent to a node that fails to answer it."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def ask(self, requests: Mapping[int, RecordDict], seconds: float) -> Iterator[Reply]:
        """Yield one reply for every node that is asked, as they arrive; those that are late are told at the end."""
        asking = _Asking(self, requests, self.clock() + seconds)
        pause = _SHORTEST
        while asking.open and self.clock() < asking.until:
            replies = list(asking.look())
            yield from replies
            pause = _SHORTEST if replies else min(pause * 1.5, _LONGEST)
            if asking.open:
                self.sleep(min(pause, max(0.0, asking.until - self.clock())))
        for node in sorted(asking.open):
            yield Reply(node, None, f"did not answer within {seconds:g} s")


class _Asking:
    """The state of one exchange: who has not answered, what is under way, and who is missing since when."""

    def __init__(self, exchange: Exchange, requests: Mapping[int, RecordDict], until: float) -> None:
        self.until = until
        self.open = set(requests)
        self._exchange, self._requests = exchange, requests
        self._due = dict.fromkeys(requests, 0.0)  # when to send it; not there while it is under way
        self._sent: dict[str, int] = {}
        self._tried = dict.fromkeys(requests, 0)
        self._missing: dict[int, float] = {}
        self._looked = exchange.clock()

    def look(self) -> Iterator[Reply]:
        """Send what is due, and yield what has come."""
        grid, now = self._exchange.grid, self._exchange.clock()
        self._push([node for node, at in self._due.items() if at <= now], now)
        for message in grid.pull_messages(list(self._sent)) if self._sent else ():
            node = self._sent.pop(message.metadata.reply_to_message_id, NOBODY)
            if node in self.open and (reply := self._read(node, message, now)) is not None:
                yield self._close(reply)
        if now - self._looked > _LOOK_AROUND:
            self._looked = now
            for node in self._gone(now):
                yield self._close(Reply(node, None, "went away"))

    def _push(self, nodes: list[int], now: float) -> None:
        """Send requests; those that are not accepted, because their node is not there, stay due."""
        if not nodes:
            return
        kind, group, ttl = self._exchange.message_type, self._exchange.group, self.until - now
        messages = [Message(self._requests[node], node, kind, ttl=ttl, group_id=group) for node in nodes]
        accepted = {name for name in self._exchange.grid.push_messages(messages) if name}
        for message in messages:
            if message.metadata.message_id in accepted:
                self._sent[message.metadata.message_id] = message.metadata.dst_node_id
                del self._due[message.metadata.dst_node_id]

    def _read(self, node: int, message: Message, now: float) -> Reply | None:
        """Return what came, or None if the node is to be asked again."""
        if not message.has_error():
            return Reply(node, message.content)
        code = message.error.code
        if code == REFUSED:
            return Reply(node, None, "refused; its own log says why")
        # While a node is away, its SuperLink answers at once. How long that may last is for the grace to say.
        self._tried[node] += code != UNAVAILABLE
        if self._tried[node] >= self._exchange.tries:
            return Reply(node, None, f"failed with Flower's error {code}")
        self._due[node] = now + _AGAIN
        return None

    def _gone(self, now: float) -> list[int]:
        """Return the nodes that went away and have not come back in time."""
        there = set(self._exchange.grid.get_node_ids())
        self._missing = {node: self._missing.get(node, now) for node in self.open - there}
        return [node for node, since in sorted(self._missing.items()) if now - since > self._exchange.grace]

    def _close(self, reply: Reply) -> Reply:
        self.open.remove(reply.node)
        self._due.pop(reply.node, None)
        return reply
