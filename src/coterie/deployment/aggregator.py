"""The aggregator: the server's half of a deployment. It plays rounds over a carrier and returns weighted means.

One call of :meth:`Aggregator.mean` is one round of :mod:`coterie.rounds`: new nodes are enrolled, whole circles of
connected nodes are selected, each step is one trip, and what the nodes work on travels with the request to mask it.
Why nodes left and what a round cost is kept, and logged.
"""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from coterie.cohorts.ledger import Ledger
from coterie.cohorts.policies import MultiRound
from coterie.deployment.engine import Assignment, Carrier, Task, Trip, kind_of
from coterie.deployment.enrolment import Enrolment
from coterie.deployment.form import Form, Mean, content_digest, form_under
from coterie.deployment.logs import LOGGER, grouped
from coterie.deployment.reasons import Asked
from coterie.deployment.settings import PrivateSettings
from coterie.errors import NothingTrained
from coterie.reports.words import one_line
from coterie.rounds import Coordinator, Round, RoundResult, SessionSettings
from coterie.rounds.coordinator import SessionShape
from coterie.secagg.server import Aggregate, Step

MUCH_CLIPPED = 0.01
_MOST_NAMED = 5  # arrays that were clipped
_MOST_ALIKE = 3  # lines of a log that say the same of different clients, before they are counted


@dataclass
class Traffic:
    """What a round cost: bytes of the protocol's messages and seconds, by step, and how many messages there were."""

    seconds: dict[Step, float] = field(default_factory=dict)
    sent: dict[Step, int] = field(default_factory=dict)
    received: dict[Step, int] = field(default_factory=dict)
    messages: int = 0


class Aggregator:
    """Plays the rounds of one run."""

    def __init__(
        self, carrier: Carrier, enrolment: Enrolment, ledger: Ledger, settings: PrivateSettings, place: str
    ) -> None:
        """Take up the rounds of a population.

        Args:
            carrier: the connection to the nodes.
            enrolment: who the nodes are.
            ledger: the history of this population, and where it is continued.
            settings: what is decided once for all rounds.
            place: where Coterie has to be in an app, in the words of its engine.

        """
        self._carrier, self._enrolment, self._ledger = carrier, enrolment, ledger
        self._settings, self._place = settings, place
        self._empty = self._trainings = 0
        self.reasons: dict[str, str] = {}
        """Why clients are not in the last sum that was tried, by their names."""
        self.results: list[RoundResult[Mean]] = []
        """The result of each round, in order."""
        self.traffic: list[Traffic] = []

    def mean(self, assignment: Assignment, training: float) -> Mean | None:
        """Return the weighted mean over whole circles of nodes; None if the round had no result.

        ``training`` is the number of seconds that nodes have for the app's function.
        """
        self.reasons = {}
        self._enrolment.gather(assignment.function, 0)
        form = form_under(self._enrolment.roster, assignment.function)
        opened = self._open(assignment, form)
        self._play(opened, assignment, form, training)
        result = opened.result
        self.reasons |= self._enrolment.unknown
        self.results.append(result)
        self._log_result(result)
        if result.value is not None:
            _warn_of_clipping(result.value.clipped)
        return result.value

    def count(self, *, empty: bool) -> None:
        """Count rounds of training in a row without a result, and end the run if they are too many."""
        self._trainings += 1
        self._empty = self._empty + 1 if empty else 0
        if self._empty and self._empty == self._settings.empty_rounds:
            raise self._nothing_trained()

    def check_trained(self) -> None:
        """Refuse to call a run finished in which no training had a result, unless the settings allow it."""
        if self._empty and self._empty == self._trainings and self._settings.empty_rounds:
            raise self._nothing_trained()

    def _nothing_trained(self) -> NothingTrained:
        rounds = "a round had no result" if self._empty == 1 else f"{self._empty} rounds in a row had no result"
        what = [f"{rounds}, and the model is as it was before", one_line(self.results[-1].reason)]
        return NothingTrained("; ".join(filter(None, [*what, *grouped(self.reasons)])), self.reasons)

    def _open(self, assignment: Assignment, form: Form) -> "Round[Mean]":
        settings, roster, available = self._settings, self._enrolment.roster, self._enrolment.available()
        arrays, number = assignment.arrays, self._ledger.latest() + 1
        circles = roster.usable()
        complete = int(circles.sizes[circles.complete(available)].sum())
        cohort = settings.cohort or max(complete, int(circles.sizes.max()))

        def decode(aggregate: Aggregate) -> Mean:
            return form.decode(arrays, aggregate)

        coordinator: Coordinator[Mean] = Coordinator(
            roster,
            MultiRound(circles, cohort),
            self._ledger,
            SessionSettings(
                form.quantizer.ring.bits,
                form.quantizer.length(form.layout(arrays)),
                shape=lambda _clients: SessionShape(colluders=settings.colluders),
                minimum=settings.minimum,
                mode=settings.mode,
            ),
            decode,
        )
        task = Task(self._carrier.run, assignment.function, str(number))
        digest = content_digest(assignment.content, form, self._enrolment.run_config, task)
        return coordinator.open(number, available, np.random.default_rng(), content=digest)

    def _play(self, opened: "Round[Mean]", assignment: Assignment, form: Form, training: float) -> None:
        """Play a round, one trip for each step."""
        traffic = Traffic()
        self.traffic.append(traffic)
        enrolment, asked = self._enrolment, self._asked(assignment, form)
        outgoing = opened.invite()
        inviting = True
        while outgoing:
            step = opened.step
            masking = step is Step.MASK
            trip = Trip(
                assignment.function,
                str(opened.number),
                {enrolment.node(client): message for client, message in outgoing.items()},
                training if masking else self._settings.deadline,
                rosters={enrolment.node(client): enrolment.missing_rosters(client) for client in outgoing}
                if inviting
                else {},
                vouchers=enrolment.vouchers if inviting else b"",
                records=assignment.records if masking else None,
                asked=asked,
            )
            inviting = False
            self._send(opened, trip, traffic)
            traffic.sent[step] = sum(len(message) for message in outgoing.values())
            traffic.messages += len(outgoing)
            outgoing = opened.close()

    def _send(self, opened: "Round[Mean]", trip: Trip, traffic: Traffic) -> None:
        """Make a trip, hand the answers to the round, and log who left."""
        names = {self._enrolment.node(client): client for client in opened.selected}
        step, began, received = opened.step, time.monotonic(), 0
        left: Counter[str] = Counter()
        for reply in self._carrier.send(trip):
            client, reason = names[reply.node], reply.reason
            received += len(reply.payload)
            if not reason and (rejected := opened.receive(client, reply.payload)) is not None:
                reason = one_line(rejected.reason)
            if not reason:
                self._enrolment.mark_answered(client)
                continue
            self.reasons[client] = reason
            left[reason] += 1
            if left[reason] <= _MOST_ALIKE:
                LOGGER.warning("%s leaves round %s in step %s: %s", client, opened.number, step, reason)
        for reason, count in left.items():
            if (more := count - _MOST_ALIKE) > 0:
                LOGGER.warning("%s more leave round %s in step %s: %s", more, opened.number, step, reason)
        traffic.seconds[step], traffic.received[step] = time.monotonic() - began, received

    def _asked(self, assignment: Assignment, form: Form) -> Asked:
        """Return what nodes are asked for, by the server's own names."""
        metrics = tuple(metric.name for metric in form.metrics)
        setting = f"{kind_of(assignment.function)}_metrics"
        return Asked(setting, metrics, tuple(assignment.arrays), form.recipe.weight, self._place)

    def _log_result(self, result: "RoundResult[Mean]") -> None:
        if result.value is None:
            LOGGER.warning("round %s: %s: %s", result.number, result.outcome, result.reason)
            for line in grouped(self.reasons):
                LOGGER.warning("round %s has no result: %s", result.number, line)
            return
        tally = result.tally
        lost = f" ({tally})" if tally.aggregated < tally.selected else ""
        LOGGER.info("round %s: one sum over %s clients%s", result.number, tally.aggregated, lost)


def _warn_of_clipping(clipped: Mapping[str, float]) -> None:
    """Name the arrays of which much was clipped, the worst first."""
    much = sorted(((share, name) for name, share in clipped.items() if share > MUCH_CLIPPED), reverse=True)
    if much:
        arrays = ", ".join(f"{100 * share:.1f} % of {one_line(name)}" for share, name in much[:_MOST_NAMED])
        more = f" and of {len(much) - _MOST_NAMED} more arrays" if len(much) > _MOST_NAMED else ""
        LOGGER.warning(
            "entries that moved further than their range, or were NaN, were clipped: %s%s. Their mean is not what the "
            "nodes computed. Wider ranges (clip, or clips for these names) need another population",
            arrays,
            more,
        )
