"""One exchange with many nodes: requests go out, replies come back, and nothing waits for ever.

Flower's own ``send_and_receive`` sleeps three seconds between looks and lets a message live for twelve hours. Here a
request lives as long as its step. It is sent again if it was lost, or if its node went away and is back; the same
request has the same answer, so that is safe. Errors that the SuperLink makes itself do not say which node they are
about: replies are told apart by the request they answer.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

REFUSED = 6
NOBODY = -1
_SHORTEST, _LONGEST = 0.05, 1.0  # seconds between two looks
_LOOK_AROUND = 3.0  # seconds between two looks at who is connected


@dataclass
class Reply:
    """What came of a request: the records of the reply, or why there are none."""

    node: int
    records: RecordDict | None
    reason: str = ""


@dataclass
class Exchange:
    """Sends requests of one kind and collects the replies."""

    grid: Grid
    message_type: str
    group: str
    grace: float = 15.0
    """Seconds that a node which went away has to come back."""
    tries: int = 3
    """How often a request is sent to a node that fails to answer it."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _sent: dict[str, int] = field(default_factory=dict)
    _missing: dict[int, float] = field(default_factory=dict)
    _tried: dict[int, int] = field(default_factory=dict)

    def ask(self, requests: Mapping[int, RecordDict], seconds: float) -> Iterator[Reply]:
        """Yield one reply for every node that is asked, as they arrive; those that are late are told at the end."""
        until = self.clock() + seconds
        unsent, open_nodes = dict.fromkeys(requests, 0.0), set(requests)
        self._sent, self._missing, self._tried = {}, {}, {}
        looked, pause = self.clock(), _SHORTEST
        while open_nodes and (now := self.clock()) < until:
            due = [node for node, at in unsent.items() if at <= now]
            for node in self._push({node: requests[node] for node in due}, until - now):
                del unsent[node]
            replies = list(self.grid.pull_messages(list(self._sent))) if self._sent else []
            for message in replies:
                node = self._sent.pop(message.metadata.reply_to_message_id, NOBODY)
                if node not in open_nodes:
                    continue
                again, reply = self._read(node, message)
                if again:
                    unsent[node] = now + 1.0
                else:
                    open_nodes.remove(node)
                    yield reply
            if now - looked > _LOOK_AROUND:
                looked = now
                for node in self._gone(open_nodes, now):
                    open_nodes.remove(node)
                    unsent.pop(node, None)
                    yield Reply(node, None, "went away")
            pause = _SHORTEST if replies else min(pause * 1.5, _LONGEST)
            if open_nodes:
                self.sleep(min(pause, max(0.0, until - self.clock())))
        for node in sorted(open_nodes):
            yield Reply(node, None, f"did not answer within {seconds:g} s")

    def _push(self, requests: Mapping[int, RecordDict], ttl: float) -> list[int]:
        """Send requests; return the nodes for which that worked."""
        if not requests:
            return []
        messages = [
            Message(records, node, self.message_type, ttl=ttl, group_id=self.group)
            for node, records in requests.items()
        ]
        accepted = {name for name in self.grid.push_messages(messages) if name}
        pushed = {message.metadata.message_id: message.metadata.dst_node_id for message in messages}
        sent = {name: node for name, node in pushed.items() if name in accepted}
        self._sent.update(sent)
        return list(sent.values())

    def _read(self, node: int, message: Message) -> tuple[bool, Reply]:
        """Return whether to ask again, and what came."""
        if not message.has_error():
            return False, Reply(node, message.content)
        code = message.error.code
        self._tried[node] = self._tried.get(node, 0) + 1
        if code == REFUSED:
            return False, Reply(node, None, "refused; its own log says why")
        return self._tried[node] < self.tries, Reply(node, None, f"failed with Flower's error {code}")

    def _gone(self, nodes: set[int], now: float) -> list[int]:
        """Return the nodes that went away and have not come back in time."""
        there = set(self.grid.get_node_ids())
        for node in nodes:
            if node in there:
                self._missing.pop(node, None)
            else:
                self._missing.setdefault(node, now)
        return [node for node in sorted(nodes) if now - self._missing.get(node, now) > self.grace]
