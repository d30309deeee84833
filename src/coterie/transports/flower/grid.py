"""A grid in front of Flower's: what a strategy sends to train comes back as one reply, the mean over whole circles.

To a strategy it looks as if a single client had answered, with all examples there are. In between lies a round of
:mod:`coterie.rounds`, step by step over Flower's own grid. The messages that a strategy makes for the nodes it sampled
are one template: who takes part is for the circles to decide.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from logging import INFO, WARNING

import numpy as np
from flwr.app import ArrayRecord, ConfigRecordValues, Message, RecordDict
from flwr.common.logger import log
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from coterie.cohorts.ledger import Ledger
from coterie.cohorts.policies import MultiRound
from coterie.errors import ConfigError, LocalProtocolError, NothingTrained, PeerProtocolError
from coterie.rounds import Coordinator, Round, RoundResult, SessionSettings
from coterie.rounds.coordinator import SessionShape
from coterie.secagg.server import Aggregate, Step
from coterie.transports.flower.enrolment import Enrolment
from coterie.transports.flower.exchange import Exchange, Reply
from coterie.transports.flower.form import (
    Form,
    Mean,
    Task,
    content_digest,
    form_under,
    whole_numbers,
    with_whole_numbers,
)
from coterie.transports.flower.link import steadily
from coterie.transports.flower.logs import grouped, shown
from coterie.transports.flower.reasons import Asked
from coterie.transports.flower.records import STEP, packed, payload_of
from coterie.transports.flower.settings import LONGEST, PrivateSettings

MUCH_CLIPPED = 0.01
_ENOUGH_LOOKS = 2  # Flower's strategies count the nodes once and sample them once
_MOST_NAMED = 5  # arrays that were clipped
_MOST_ALIKE = 3  # lines of a log that say the same of different clients, before they are counted
_MOST_SHOWN = 1 << 16  # to a strategy that waits for more than it says; it makes a message for each that it samples


@dataclass
class Traffic:
    """What a round cost: bytes of the protocol's messages and seconds, by step, and how many messages there were."""

    seconds: dict[Step, float] = field(default_factory=dict)
    sent: dict[Step, int] = field(default_factory=dict)
    received: dict[Step, int] = field(default_factory=dict)
    messages: int = 0


class PrivateGrid(Grid):
    """Flower's grid, for a strategy that must not see what single clients reply."""

    def __init__(
        self,
        grid: Grid,
        enrolment: Enrolment,
        ledger: Ledger,
        settings: PrivateSettings,
        shown: int,
        initial_arrays: ArrayRecord,
    ) -> None:
        """Stand in front of a grid.

        Args:
            grid: Flower's own.
            enrolment: who is behind it.
            ledger: the history of this population, and where it is continued.
            settings: what is decided once.
            shown: how many nodes the strategy wants to see before it begins a round.
            initial_arrays: the model that the app begins with; it says which arrays are of whole numbers.

        """
        self._whole = whole_numbers(initial_arrays)
        self._grid, self._enrolment, self._ledger = grid, enrolment, ledger
        self._settings, self._shown = settings, shown
        self._asked = 0
        self._told: set[str] = set()
        self._empty = self._trainings = 0
        self.reasons: dict[str, str] = {}
        """Why clients are not in the last sum that was tried, by their names."""
        self.results: list[RoundResult[Mean]] = []
        """What became of each sum, in order."""
        self.traffic: list[Traffic] = []

    def set_run(self, run: Run) -> None:
        """Set the run of the grid behind."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """The run of the grid behind."""
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Make a message, as the grid behind does."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return as many numbers as the strategy waits for, those of nodes first.

        Who takes part is not decided by what a strategy samples, so there is nothing for it to wait for: a strategy
        that asks again and again, because there were too few, is shown twice as many each time, up to 65,536.
        """
        nodes = list(steadily(self._grid.get_node_ids, self._settings.deadline))
        self._asked += 1
        least = max(self._shown, len(nodes))
        doubled = least << min(max(0, self._asked - _ENOUGH_LOOKS), _MOST_SHOWN.bit_length())
        shown = max(least, min(doubled, _MOST_SHOWN))
        return [*nodes, *range(1, 1 + shown - len(nodes))]

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return the nodes that are connected."""
        return steadily(self._grid.get_nodes, self._settings.deadline)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Refuse: replies to single messages are what must not be seen."""
        raise LocalProtocolError("under a PrivateStrategy messages are sent by send_and_receive only")

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Refuse, as nothing can have been pushed."""
        raise LocalProtocolError("under a PrivateStrategy messages are sent by send_and_receive only")

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Return one reply, the mean over whole circles; none if the round came to nothing."""
        listed = list(messages)
        self._asked = 0
        if not listed:
            return []
        template = listed[0]
        kind = template.metadata.message_type.partition(".")[0]
        if any(_differs(template, message) for message in listed[1:]):
            raise ConfigError(
                "the strategy has different messages for different nodes; a sum over clients that worked on different "
                "things would single them out"
            )
        template.content = with_whole_numbers(template.content, self._whole)
        if kind == "train":
            replies = self._mean(template, timeout)
            self._count(empty=not replies)
            return replies
        if kind != "evaluate":
            raise ConfigError(f"{kind} messages are answered by single nodes, and are not sent under a PrivateStrategy")
        if self._settings.evaluate_metrics:
            return self._mean(template, timeout)
        self._tell_once(
            "nodes are not asked to evaluate: a reply would show the metrics of one. Declare evaluate_metrics to have "
            "their mean by a session of its own, or evaluate on the server"
        )
        return []

    def check_trained(self) -> None:
        """Refuse to call a run finished in which no training had a result, unless that is allowed."""
        if self._empty and self._empty == self._trainings and self._settings.empty_rounds:
            raise self._nothing_trained()

    def _count(self, *, empty: bool) -> None:
        """Count rounds in a row without a result, and end the run if they are too many."""
        self._trainings += 1
        self._empty = self._empty + 1 if empty else 0
        if self._empty and self._empty == self._settings.empty_rounds:
            raise self._nothing_trained()

    def _nothing_trained(self) -> NothingTrained:
        rounds = "a round had no result" if self._empty == 1 else f"{self._empty} rounds in a row had no result"
        what = [f"{rounds}, and the model is as it was before", shown(self.results[-1].reason), *grouped(self.reasons)]
        return NothingTrained("; ".join(filter(None, what)), self.reasons)

    def _mean(self, template: Message, timeout: float | None) -> list[Message]:
        self.reasons = {}
        self._enrolment.gather(template.metadata.message_type, 0)
        form = form_under(self._enrolment.roster, template.metadata.message_type)
        opened = self._open(template, form)
        self._play(opened, template, form, min(timeout or LONGEST, LONGEST))
        result = opened.result
        self.reasons |= self._enrolment.unknown
        self.results.append(result)
        self._tell(result)
        if result.value is None:
            return []
        mean = result.value
        self._warn_of_clipping(mean.clipped)
        reply = RecordDict({"metrics": mean.metrics, **({"arrays": mean.arrays} if form.arrays else {})})
        return [Message(reply, reply_to=template)]

    def _open(self, template: Message, form: Form) -> "Round[Mean]":
        settings, roster, there = self._settings, self._enrolment.roster, self._enrolment.there()
        content, number = template.content, self._ledger.latest() + 1
        circles = roster.usable()
        complete = int(circles.sizes[circles.complete(there)].sum())
        cohort = settings.cohort or max(complete, int(circles.sizes.max()))

        def decode(aggregate: Aggregate) -> Mean:
            return form.decode(content, aggregate)

        coordinator: Coordinator[Mean] = Coordinator(
            roster,
            MultiRound(circles, cohort),
            self._ledger,
            SessionSettings(
                form.quantizer.ring.bits,
                form.quantizer.length(form.layout(content)),
                shape=lambda _clients: SessionShape(colluders=settings.colluders),
                minimum=settings.minimum,
                mode=settings.mode,
            ),
            decode,
        )
        task = Task(self._grid.run.run_id, template.metadata.message_type, str(number))
        digest = content_digest(content, form, self._enrolment.run_config, task)
        return coordinator.open(number, there, np.random.default_rng(), content=digest)

    def _play(self, opened: "Round[Mean]", template: Message, form: Form, training: float) -> None:
        """Carry a round over Flower, a step at a time; what nodes work on goes out with the request to mask it."""
        traffic = Traffic()
        self.traffic.append(traffic)
        asked = _asked(template, form)
        outgoing = opened.invite()
        first = True
        while outgoing:
            step = opened.step
            masking = step is Step.MASK
            requests = {}
            for client, message in outgoing.items():
                header: dict[str, ConfigRecordValues] = {"kind": STEP}
                if first:
                    header.update(self._enrolment.shown_to(client))
                records = packed(message, header, template.content if masking else None)
                requests[self._enrolment.node(client)] = records
            first = False
            seconds = training if masking else self._settings.deadline
            self._exchange(opened, template, requests, seconds, traffic, asked)
            traffic.sent[step] = sum(len(message) for message in outgoing.values())
            traffic.messages += len(outgoing)
            outgoing = opened.close()

    def _exchange(
        self,
        opened: "Round[Mean]",
        template: Message,
        requests: Mapping[int, RecordDict],
        seconds: float,
        traffic: Traffic,
        asked: Asked,
    ) -> None:
        names = {self._enrolment.node(client): client for client in opened.selected}
        step, began, received = opened.step, time.monotonic(), 0
        left: Counter[str] = Counter()
        kind, number = template.metadata.message_type, str(opened.number)
        exchange = Exchange(self._grid, kind, number, self._settings.grace, asked=asked)
        for reply in exchange.ask(requests, seconds):
            client = names[reply.node]
            payload, reason = _payload(reply, client)
            received += len(payload)
            if not reason and (rejected := opened.receive(client, payload)) is not None:
                reason = shown(rejected.reason)
            if not reason:
                self._enrolment.answered(client)
                continue
            self.reasons[client] = reason
            left[reason] += 1
            if left[reason] <= _MOST_ALIKE:
                log(WARNING, "Coterie: %s leaves round %s in step %s: %s", client, number, step, reason)
        for reason, count in left.items():
            if (more := count - _MOST_ALIKE) > 0:
                log(WARNING, "Coterie: %s more leave round %s in step %s: %s", more, number, step, reason)
        traffic.seconds[step], traffic.received[step] = time.monotonic() - began, received

    def _tell(self, result: "RoundResult[Mean]") -> None:
        if result.value is None:
            log(WARNING, "Coterie: round %s: %s: %s", result.number, result.outcome, result.reason)
            for line in grouped(self.reasons):
                log(WARNING, "Coterie: round %s has no result: %s", result.number, line)
            return
        tally = result.tally
        lost = f" ({tally})" if tally.aggregated < tally.selected else ""
        log(INFO, "Coterie: round %s: one sum over %s clients%s", result.number, tally.aggregated, lost)

    def _warn_of_clipping(self, clipped: Mapping[str, float]) -> None:
        """Name the arrays that are wrong by more than rounding, the worst first."""
        much = sorted(((share, name) for name, share in clipped.items() if share > MUCH_CLIPPED), reverse=True)
        if much:
            arrays = ", ".join(f"{100 * share:.1f} % of {shown(name)}" for share, name in much[:_MOST_NAMED])
            more = f" and of {len(much) - _MOST_NAMED} more arrays" if len(much) > _MOST_NAMED else ""
            log(
                WARNING,
                "Coterie: entries that moved further than their range, or were NaN, were clipped: %s%s. Their mean is "
                "not what the nodes computed. Wider ranges (clip, or clips for these names) take another population",
                arrays,
                more,
            )

    def _tell_once(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            log(INFO, "Coterie: %s", words)


def _asked(template: Message, form: Form) -> Asked:
    """Return what nodes are asked for, by names that are the server's own."""
    kind = template.metadata.message_type.partition(".")[0]
    arrays = tuple(name for record in template.content.array_records.values() for name in record)
    return Asked(f"{kind}_metrics", tuple(metric.name for metric in form.metrics), arrays, form.recipe.weight)


def _payload(reply: Reply, client: str) -> tuple[bytes, str]:
    """Return what a client answered, or why there is nothing."""
    if reply.records is None:
        return b"", reply.reason
    try:
        return payload_of(reply.records, client), ""
    except PeerProtocolError as error:
        return b"", shown(error.reason)


def _differs(one: Message, other: Message) -> bool:
    """Tell whether two messages ask for different things; strategies hand out one and the same content to all."""
    if one.metadata.message_type != other.metadata.message_type:
        return True
    return one.content is not other.content and one.content.object_id != other.content.object_id
