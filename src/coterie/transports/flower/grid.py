"""A grid that wraps Flower's: the training messages of a strategy get one reply, the mean over whole circles.

The strategy sees one reply, as if a single client with all examples had answered. It comes from a round of
:mod:`coterie.deployment`. The first message that the strategy makes for its sampled nodes is a template for all nodes.
The circles decide which nodes take part.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from coterie.deployment.aggregator import Aggregator, Traffic
from coterie.deployment.engine import EVALUATE, TRAIN, Assignment, kind_of
from coterie.deployment.form import Mean, as_type
from coterie.deployment.logs import LOGGER
from coterie.deployment.settings import LONGEST, PrivateSettings
from coterie.errors import ConfigError, LocalProtocolError
from coterie.rounds import RoundResult
from coterie.transports.flower.descent import DescentRounds
from coterie.transports.flower.link import call_with_retries
from coterie.transports.flower.records import model_of, name_of

_ENOUGH_LOOKS = 2  # Flower's strategies count the nodes once and sample them once
_MOST_SHOWN = 1 << 16  # limit for a strategy that waits for ever more nodes; it makes a message for each one it samples
_SINGLE = "under a PrivateStrategy only send_and_receive can send messages, because replies of single nodes stay hidden"


class PrivateGrid(Grid):
    """Flower's grid, for a strategy that must not see the replies of single clients."""

    def __init__(
        self,
        grid: Grid,
        aggregator: Aggregator,
        settings: PrivateSettings,
        shown: int,
        initial_arrays: ArrayRecord,
        number: Callable[[], int],
        descent: DescentRounds | None = None,
    ) -> None:
        """Wrap a grid.

        Args:
            grid: Flower's grid.
            aggregator: plays the rounds over it.
            settings: the settings of all rounds.
            shown: the number of nodes that the strategy wants to see before it begins a round.
            initial_arrays: the initial model of the app; arrays keep their types.
            number: returns the number of the current round.
            descent: the confined descent that rounds belong to; None if all nodes train the server's model.

        """
        self._grid, self._aggregator, self._settings, self._shown = grid, aggregator, settings, shown
        self._types = array_types(initial_arrays)
        self._number, self._descent = number, descent
        self._trained: Message | None = None
        self._looks = self._seen = 0
        self._logged: set[str] = set()

    @property
    def reasons(self) -> dict[str, str]:
        """Why clients are not in the last attempted sum, by their names."""
        return self._aggregator.reasons

    @property
    def results(self) -> list[RoundResult[Mean]]:
        """The result of each round, in order."""
        return self._aggregator.results

    @property
    def traffic(self) -> list[Traffic]:
        """The cost of each round."""
        return self._aggregator.traffic

    def set_run(self, run: Run) -> None:
        """Set the run of the wrapped grid."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """The run of the wrapped grid."""
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Make a message, as the wrapped grid does."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return as many node numbers as the strategy waits for, those of connected nodes first.

        A strategy's sample does not decide which nodes take part, so it need not wait. A strategy that asks again
        because there were too few gets twice as many each time, up to 65,536.
        """
        nodes = list(call_with_retries(self._grid.get_node_ids, self._settings.deadline))
        self._looks += 1
        least = max(self._shown, len(nodes))
        doubled = least << min(max(0, self._looks - _ENOUGH_LOOKS), _MOST_SHOWN.bit_length())
        self._seen = shown = max(least, min(doubled, _MOST_SHOWN))
        return [*nodes, *range(1, 1 + shown - len(nodes))]

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return the nodes that are connected."""
        return call_with_retries(self._grid.get_nodes, self._settings.deadline)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Raise an error, because replies to single messages would not be protected."""
        raise LocalProtocolError(_SINGLE)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Raise an error, because no message can have been pushed."""
        raise LocalProtocolError(_SINGLE)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Return one reply, the mean over whole circles; none if the round had no result."""
        listed = list(messages)
        self._looks = 0
        if not listed:
            return []
        template = listed[0]
        kind = kind_of(template.metadata.message_type)
        if any(_differs(template, message) for message in listed[1:]):
            raise ConfigError(
                "the strategy has different messages for different nodes; a sum over clients that worked on different "
                "things would single them out"
            )
        template.content = with_types(template.content, self._types)
        seconds = min(timeout or LONGEST, LONGEST)
        share = min(1.0, len(listed) / self._seen) if self._seen else 1.0
        if kind == TRAIN:
            replies = self._mean(template, seconds, share)
            self._aggregator.count(empty=not replies)
            return replies
        if kind != EVALUATE:
            raise ConfigError(f"{kind} messages are answered by single nodes, and are not sent under a PrivateStrategy")
        if self._settings.evaluate_metrics:
            return self._mean(template, seconds, share)
        self._log_once(
            "nodes do not evaluate, because a reply would reveal the metrics of one node. Declare evaluate_metrics to "
            "get their mean from a session of its own, or evaluate on the server"
        )
        return []

    def show(self, arrays: ArrayRecord | None, seconds: float) -> None:
        """Send nodes the latest model of a confined descent, configured like the last training."""
        if self._descent is None or self._trained is None or arrays is None:
            return
        function, content = self._trained.metadata.message_type, self._trained.content
        key = next(iter(content.array_records))
        records = with_types(RecordDict({**dict(content.items()), key: arrays}), self._types)
        assignment = Assignment(function, b"", {}, round=self._number())
        self._aggregator.show(self._descent.prepare(assignment, records), min(seconds, LONGEST))

    def _mean(self, template: Message, seconds: float, share: float) -> list[Message]:
        function, content = template.metadata.message_type, template.content
        trains = kind_of(function) == TRAIN
        if trains:
            self._trained = template
        if share < 1 and self._settings.cohort is None:
            self._log_once(f"the strategy asks for {100 * share:.0f} % of the nodes: rounds have that share of circles")
        assignment = Assignment(
            function,
            name_of(content),
            model_of(content) if trains else {},
            round=self._number(),
            share=share,
            records=content,
        )
        if self._descent is not None:
            assignment = self._descent.prepare(assignment, content)
        mean = self._aggregator.mean(assignment, seconds)
        if self._descent is not None:
            self._descent.note(self.results[-1], self.reasons)
        if mean is None:
            return []
        reply = RecordDict({"metrics": MetricRecord(dict(mean.metrics))})
        if trains:
            reply["arrays"] = ArrayRecord({name: Array(array) for name, array in mean.arrays.items()})
        return [Message(reply, reply_to=template)]

    def _log_once(self, words: str) -> None:
        if words not in self._logged:
            self._logged.add(words)
            LOGGER.info("%s", words)


def array_types(arrays: ArrayRecord) -> dict[str, np.dtype[Any]]:
    """Return the types of these arrays by name."""
    return {name: array.numpy().dtype for name, array in arrays.items()}


def with_types(records: RecordDict, types: Mapping[str, np.dtype[Any]]) -> RecordDict:
    """Return records with the original types of these arrays, which computations of a strategy may have changed."""
    copy = RecordDict(dict(records.items()))
    for key, arrays in records.array_records.items():
        copy[key] = ArrayRecord({name: _with_type(array, types.get(name)) for name, array in arrays.items()})
    return copy


def _with_type(array: Array, kind: np.dtype[Any] | None) -> Array:
    now = array.numpy()
    typed = as_type(now, kind)
    return array if typed is now else Array(typed)


def _differs(one: Message, other: Message) -> bool:
    """Return whether two messages have different content; strategies that work here give all nodes the same object."""
    if one.metadata.message_type != other.metadata.message_type:
        return True
    return one.content is not other.content and one.content.object_id != other.content.object_id
