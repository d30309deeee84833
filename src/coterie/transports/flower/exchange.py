"""One exchange with many nodes: requests go out, replies come back, and every wait has an end.

Flower's own ``send_and_receive`` sleeps three seconds between looks and lets a message live for twelve hours. Here a
request lives as long as its step. It is sent again if it was lost, or if its node went away and is back; the same
request has the same answer, so that is safe. Errors that the SuperLink itself makes do not name the node: replies are
matched by the request that they answer.

A call to the SuperLink may fail although it did its work. A request is then sent again with the same identifier, which
Flower takes for the same request; where a grid gives it a new one, the node gets two and gives both the same answer.
Replies that a failed call had already taken never come again, so nodes that were asked by then are asked again after a
while. The reply to any copy counts, and only one does.
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
_SHORTEST, _SHORT, _LONGEST = 0.01, 0.05, 0.5  # seconds between two looks
_SHARE = 20  # a look that takes no time, as in a simulation, is soon followed by another: looking is 1/20 of the time
_LOOK_AROUND = 3.0  # seconds between two looks at who is connected
_AGAIN = 1.0  # seconds before a request that was lost is sent again
_PERHAPS_LOST = 3.0  # seconds that a reply has to come after a look that failed, before its node is asked again
_LOST = (3, 4)  # Flower's codes for messages that the SuperLink does not have
_BRIEF = 30.0  # seconds; a failure at the end of a step that is shorter makes replies late, and does not end the run
_ERRORS = {
    0: f"failed for an unknown reason; {LOG}",
    1: f"cannot load its ClientApp: is coterie installed there? {LOG}",
    3: "its message was lost again and again",
    4: "its reply was lost again and again",
    5: "went away",
    7: f"did not accept the app's bundle; {LOG}",
    8: f"its ClientApp crashed; {LOG}",
}
_NO_REPLY = 2  # a mod or a function raised an exception


@dataclass(frozen=True)
class Reply:
    """The result of a request: the records of the reply, or why there are none."""

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
    """Seconds after which a node that went away is given up, so that the others need not wait until time is up."""
    tries: int = 3
    """How often a request is sent to a node that fails to answer it."""
    asked: Asked = NOTHING
    """What the requests ask for, in words."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def ask(self, requests: Mapping[int, RecordDict], seconds: float) -> Iterator[Reply]:
        """Yield one reply for every node, as they arrive; nodes that are late come at the end.

        A :class:`~coterie.errors.CarrierError` says that the SuperLink failed until the time was up.
        """
        asking = _Asking(self, requests, self.clock() + seconds)
        outage, pause = Outage(self.clock), 0.0
        while asking.open and (began := self.clock()) < asking.until:
            try:
                asking.look()
            except Exception as error:  # an error that will not pass is raised again
                pause = outage.failed(error, asking.until)
            else:
                outage.answered()
                short = min(max(_SHORTEST, _SHARE * (self.clock() - began)), _SHORT)
                pause = short if asking.found else min(max(short, pause * 1.5), _LONGEST)
            yield from asking.take()
            if asking.open:
                self.sleep(min(pause, max(0.0, asking.until - self.clock())))
        if asking.open and outage.seconds >= min(seconds, _BRIEF):
            raise outage.over()
        for node in sorted(asking.open):
            yield Reply(node, None, f"did not answer within {seconds:g} s")


class _Asking:
    """The state of one exchange: who has not answered, what is under way, and who is missing since when."""

    def __init__(self, exchange: Exchange, requests: Mapping[int, RecordDict], until: float) -> None:
        self.until = until
        self.open = set(requests)
        self.found: list[Reply] = []
        self._exchange, self._requests = exchange, requests
        self._due = dict.fromkeys(requests, 0.0)  # when to send it; not there while it is under way
        self._outbox: dict[int, Message] = {}  # sent in a call that failed, so perhaps not sent
        self._sent: dict[str, int] = {}
        self._unsure: set[str] = set()  # of those sent, the ones that a failed call was about
        self._tried = dict.fromkeys(requests, 0)
        self._missing: dict[int, float] = {}
        self._looked = exchange.clock()

    def look(self) -> None:
        """Send what is due, and note what has come; whatever was found is there also if the link fails half-way."""
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
        """Return what was found since the last time."""
        found, self.found = self.found, []
        return found

    def _push(self, nodes: list[int], now: float) -> None:
        """Send requests; those that are not accepted, because their node is not there, stay due."""
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
        """Return the request to a node: the same message again, if one may be on its way under the same identifier."""
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
        """Return what came, or None if the node is to be asked again."""
        if message.has_content():
            return Reply(node, message.content)
        if not message.has_error():
            return Reply(node, None, "sent a reply with nothing in it")
        code = message.error.code
        if code == REFUSED:
            return Reply(node, None, self._exchange.asked.refusal(message.error.reason))
        # While a node is away, its SuperLink answers at once. How long that may last is for the grace to say. And a
        # message that was lost in a call that failed is not the node's fault.
        self._tried[node] += code != UNAVAILABLE and not (code in _LOST and name in self._unsure)
        if self._tried[node] >= self._exchange.tries:
            return Reply(node, None, self._failure(code))
        self._due.setdefault(node, now + _AGAIN)
        return None

    def _failure(self, code: int) -> str:
        """Say what one of Flower's own error codes means."""
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
