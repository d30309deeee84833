"""A grid in front of Flower's: what a strategy sends to train comes back as one reply, the mean over whole circles.

To a strategy it looks as if a single client had answered, with all examples. Behind it is a round of
:mod:`coterie.deployment`. The messages that a strategy makes for the nodes it sampled are one template: the circles
decide who takes part.
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
from coterie.transports.flower.link import steadily
from coterie.transports.flower.records import model_of, name_of

_ENOUGH_LOOKS = 2  # Flower's strategies count the nodes once and sample them once
_MOST_SHOWN = 1 << 16  # to a strategy that waits for more nodes than it says; it makes a message for each it samples
_SINGLE = "under a PrivateStrategy messages are sent by send_and_receive only: replies of single nodes stay hidden"


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
        """Stand in front of a grid.

        Args:
            grid: Flower's own.
            aggregator: plays the rounds over it.
            settings: what is decided once.
            shown: how many nodes the strategy wants to see before it begins a round.
            initial_arrays: the model that the app begins with; arrays keep the types that they have in it.
            number: returns the number of the round that is being played.
            descent: the confined descent that rounds belong to; none if all nodes train the server's model.

        """
        self._grid, self._aggregator, self._settings, self._shown = grid, aggregator, settings, shown
        self._types = array_types(initial_arrays)
        self._number, self._descent = number, descent
        self._trained: Message | None = None
        self._looks = self._seen = 0
        self._logged: set[str] = set()

    @property
    def reasons(self) -> dict[str, str]:
        """Why clients are not in the last sum that was tried, by their names."""
        return self._aggregator.reasons

    @property
    def results(self) -> list[RoundResult[Mean]]:
        """The result of each round, in order."""
        return self._aggregator.results

    @property
    def traffic(self) -> list[Traffic]:
        """What each round cost."""
        return self._aggregator.traffic

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
        """Return as many numbers as the strategy waits for, those of connected nodes first.

        A strategy's sample does not decide who takes part, so there is nothing for it to wait for. A strategy that asks
        again and again, because there were too few, is shown twice as many each time, up to 65,536.
        """
        nodes = list(steadily(self._grid.get_node_ids, self._settings.deadline))
        self._looks += 1
        least = max(self._shown, len(nodes))
        doubled = least << min(max(0, self._looks - _ENOUGH_LOOKS), _MOST_SHOWN.bit_length())
        self._seen = shown = max(least, min(doubled, _MOST_SHOWN))
        return [*nodes, *range(1, 1 + shown - len(nodes))]

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return the nodes that are connected."""
        return steadily(self._grid.get_nodes, self._settings.deadline)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Refuse: replies to single messages would not be protected."""
        raise LocalProtocolError(_SINGLE)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Refuse, as nothing can have been pushed."""
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
            "nodes are not asked to evaluate: a reply would show the metrics of one. Declare evaluate_metrics to have "
            "their mean by a session of its own, or evaluate on the server"
        )
        return []

    def show(self, arrays: ArrayRecord | None, seconds: float) -> None:
        """Show nodes the model that a confined descent has come to, as the last training was configured."""
        if self._descent is None or self._trained is None or arrays is None:
            return
        function, content = self._trained.metadata.message_type, self._trained.content
        key = next(iter(content.array_records))
        records = with_types(RecordDict({**dict(content.items()), key: arrays}), self._types)
        assignment = Assignment(function, b"", {}, round=self._number())
        self._aggregator.show(self._descent.completed(assignment, records), min(seconds, LONGEST))

    def _mean(self, template: Message, seconds: float, share: float) -> list[Message]:
        function, content = template.metadata.message_type, template.content
        trains = kind_of(function) == TRAIN
        self._trained = template if trains else self._trained
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
            assignment = self._descent.completed(assignment, content)
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
    """Return records in which arrays of these names have these types again; a strategy may compute in others."""
    copy = RecordDict(dict(records.items()))
    for key, arrays in records.array_records.items():
        copy[key] = ArrayRecord({name: _with_type(array, types.get(name)) for name, array in arrays.items()})
    return copy


def _with_type(array: Array, kind: np.dtype[Any] | None) -> Array:
    now = array.numpy()
    typed = as_type(now, kind)
    return array if typed is now else Array(typed)


def _differs(one: Message, other: Message) -> bool:
    """Tell whether two messages ask for different things; strategies give one and the same content to all."""
    if one.metadata.message_type != other.metadata.message_type:
        return True
    return one.content is not other.content and one.content.object_id != other.content.object_id
