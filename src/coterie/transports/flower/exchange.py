"""One exchange with many nodes: requests go out, replies come back, and every wait has an end.

Flower's own ``send_and_receive`` sleeps three seconds between polls, and its messages expire after twelve hours. Here a
request expires with its step. It is sent again if it was lost, or if its node went away and came back. This is safe,
because a repeated request gets the same answer. Errors from the SuperLink itself do not name the node, so replies are
matched by the request that they answer.

A call to the SuperLink may fail although it took effect. The request is then sent again with the same identifier, and
Flower treats it as the same request. If a grid assigns a new identifier, the node gets two requests and gives both the
same answer. Replies that a failed call had already fetched never come again, so their nodes are asked again after a
while. The first reply to any copy counts.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from coterie.deployment.reasons import LOG, NOTHING, Asked
from coterie.deployment.settings import PrivateSettings
from coterie.transports.flower.link import Outage
from coterie.transports.flower.records import REFUSED

UNAVAILABLE = 5
NOBODY = -1
_SHORTEST, _SHORT, _LONGEST = 0.01, 0.05, 0.5  # seconds between two polls
_SHARE = 20  # polls take at most 1/20 of the time: if they are fast, as in a simulation, pauses are short
_LOOK_AROUND = 3.0  # seconds between two checks of the connected nodes
_AGAIN = 1.0  # seconds before a request that was lost is sent again
_PERHAPS_LOST = 3.0  # seconds to wait for a reply after a failed poll, before its node is asked again
_LOST = (3, 4)  # Flower's codes for messages that the SuperLink does not have
_BRIEF = 30.0  # seconds; a shorter failure at the end of a step makes replies late, but does not end the run
_ERRORS = {
    0: f"failed for an unknown reason; {LOG}",
    1: f"cannot load its ClientApp: is coterie installed there? {LOG}",
    3: "its message was lost repeatedly",
    4: "its reply was lost repeatedly",
    5: "went away",
    7: f"did not accept the app's bundle; {LOG}",
    8: f"its ClientApp crashed; {LOG}",
}
_NO_REPLY = 2  # a mod or a function raised an exception


@dataclass(frozen=True)
class Reply:
    """The result of a request: the records of the reply, or the reason for its absence."""

    node: int
    records: RecordDict | None
    reason: str = ""


@dataclass(frozen=True)
class Exchange:
    """Sends requests of one kind and collects the replies."""

    grid: Grid
    message_type: str
    group: str
    grace: float = PrivateSettings.grace
    """Seconds after which an absent node is given up, so that the others need not wait until the end of the step."""
    tries: int = 3
    """How often a request is sent to a node that does not answer."""
    asked: Asked = NOTHING
    """The content of the requests in words, for messages."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def ask(self, requests: Mapping[int, RecordDict], seconds: float) -> Iterator[Reply]:
        """Yield one reply for every node, as they arrive; nodes that are late come at the end.

        Raises :class:`~coterie.errors.CarrierError` if the SuperLink failed until the end of the step.
        """
        asking = _Asking(self, requests, self.clock() + seconds)
        outage, pause = Outage(self.clock), 0.0
        while asking.open and (began := self.clock()) < asking.until:
            try:
                asking.look()
            except Exception as error:  # a permanent error is raised again
                pause = outage.note_failure(error, asking.until)
            else:
                outage.note_answer()
                short = min(max(_SHORTEST, _SHARE * (self.clock() - began)), _SHORT)
                pause = short if asking.found else min(max(short, pause * 1.5), _LONGEST)
            yield from asking.take()
            if asking.open:
                self.sleep(min(pause, max(0.0, asking.until - self.clock())))
        if asking.open and outage.seconds >= min(seconds, _BRIEF):
            raise outage.final_error()
        for node in sorted(asking.open):
            yield Reply(node, None, f"did not answer within {seconds:g} s")


class _Asking:
    """The state of one exchange: nodes without an answer, requests under way, and absent nodes with the time."""

    def __init__(self, exchange: Exchange, requests: Mapping[int, RecordDict], until: float) -> None:
        self.until = until
        self.open = set(requests)
        self.found: list[Reply] = []
        self._exchange, self._requests = exchange, requests
        self._due = dict.fromkeys(requests, 0.0)  # when to send the request; no entry while it is under way
        self._outbox: dict[int, Message] = {}  # sent in a failed call, so perhaps not sent
        self._sent: dict[str, int] = {}
        self._unsure: set[str] = set()  # sent requests that a failed call was about
        self._tried = dict.fromkeys(requests, 0)
        self._missing: dict[int, float] = {}
        self._looked = exchange.clock()

    def look(self) -> None:
        """Send due requests and collect replies; replies that were found are kept even if the link fails later."""
        grid, now = self._exchange.grid, self._exchange.clock()
        self._push([node for node, at in self._due.items() if at <= now], now)
        for message in self._pull(now) if self._sent else ():
            name = message.metadata.reply_to_message_id
            node = self._sent.pop(name, NOBODY)
            if node in self.open and (reply := self._read(node, name, message, now)) is not None:
                self._close(reply)
        if now - self._looked > _LOOK_AROUND:
            there = set(grid.get_node_ids())
            self._looked = now
            for node in self._gone(there, now):
                self._close(Reply(node, None, "went away"))

    def take(self) -> list[Reply]:
        """Return the replies found since the last call."""
        found, self.found = self.found, []
        return found

    def _push(self, nodes: list[int], now: float) -> None:
        """Send requests; those that are not accepted, because their node is absent, stay due."""
        if not nodes:
            return
        messages = [self._message(node, now) for node in nodes]
        self._outbox.update(zip(nodes, messages, strict=True))
        try:
            accepted = {name for name in self._exchange.grid.push_messages(messages) if name}
        except Exception:
            for node, message in zip(nodes, messages, strict=True):
                if name := message.metadata.message_id:
                    self._sent[name] = node
                    self._unsure.add(name)
            raise
        for node, message in zip(nodes, messages, strict=True):
            del self._outbox[node]
            if (name := message.metadata.message_id) in accepted:
                self._sent[name] = node
                self._unsure.discard(name)
                del self._due[node]

    def _message(self, node: int, now: float) -> Message:
        """Return the request to a node: the same message again if a copy with its identifier may be on the way."""
        kept = self._outbox.get(node)
        if kept is not None and kept.metadata.message_id == kept.object_id:
            return kept
        kind, group, ttl = self._exchange.message_type, self._exchange.group, self.until - now
        return Message(self._requests[node], node, kind, ttl=ttl, group_id=group)

    def _pull(self, now: float) -> list[Message]:
        try:
            return list(self._exchange.grid.pull_messages(list(self._sent)))
        except Exception:
            self._unsure.update(self._sent)
            for node in set(self._sent.values()) & self.open:
                self._due.setdefault(node, now + _PERHAPS_LOST)
            raise

    def _read(self, node: int, name: str, message: Message, now: float) -> Reply | None:
        """Return the reply, or None if the node must be asked again."""
        if message.has_content():
            return Reply(node, message.content)
        if not message.has_error():
            return Reply(node, None, "sent a reply with nothing in it")
        code = message.error.code
        if code == REFUSED:
            return Reply(node, None, self._exchange.asked.refusal(message.error.reason))
        # While a node is away, the SuperLink answers at once; ``grace`` limits how long this may last. A message that
        # was lost in a failed call is not the node's fault.
        self._tried[node] += code != UNAVAILABLE and not (code in _LOST and name in self._unsure)
        if self._tried[node] >= self._exchange.tries:
            return Reply(node, None, self._failure(code))
        self._due.setdefault(node, now + _AGAIN)
        return None

    def _failure(self, code: int) -> str:
        """Return the meaning of one of Flower's own error codes."""
        if code == _NO_REPLY:
            missing = "and there must be a function for this type of message"
            meaning = f"{self._exchange.asked.outside}; {missing}. {LOG.capitalize()}"
        else:
            meaning = _ERRORS.get(code, f"failed; {LOG}")
        return f"{meaning} (Flower's error {code})"

    def _gone(self, there: set[int], now: float) -> list[int]:
        """Return the nodes that went away and have not come back in time."""
        self._missing = {node: self._missing.get(node, now) for node in self.open - there}
        return [node for node, since in sorted(self._missing.items()) if now - since > self._exchange.grace]

    def _close(self, reply: Reply) -> None:
        self.open.remove(reply.node)
        self._due.pop(reply.node, None)
        self._outbox.pop(reply.node, None)
        self.found.append(reply)
