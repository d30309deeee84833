"""The aggregator: the server's side of a deployment. It plays rounds over a carrier and returns weighted means.

One call of :meth:`Aggregator.mean` is one round of :mod:`coterie.rounds`: new nodes are enrolled, whole circles of
connected nodes are selected, each step is one trip, and the model and configuration travel with the request to
contribute. In two trips this request is the invitation itself. The aggregator records and logs why nodes left and the
cost of each round.
"""

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from coterie.cohorts.circles import Circles
from coterie.cohorts.ledger import Ledger
from coterie.cohorts.policies import MultiRound
from coterie.deployment.departures import SessionOutlook
from coterie.deployment.engine import SHOW, TRAIN, Assignment, Carrier, Task, Trip, kind_of
from coterie.deployment.enrolment import Enrolment
from coterie.deployment.events import Observer, RoundEvent, StepEvent, notify
from coterie.deployment.form import Form, Mean, content_digest, form_under
from coterie.deployment.logs import LOGGER, group_by_reason
from coterie.deployment.prekey_supply import PrekeySupply
from coterie.deployment.reasons import Asked
from coterie.deployment.settings import PrivateSettings
from coterie.errors import CarrierError, NothingTrained, RoundAborted
from coterie.graphs.topology import Complete
from coterie.reports.words import one_line
from coterie.rounds import Coordinator, Round, RoundResult, SessionSettings
from coterie.rounds.coordinator import SessionShape
from coterie.secagg.protocols import AUTO, MOST_SHARES, SessionProtocol, choose_protocol
from coterie.secagg.server import Aggregate, Step
from coterie.secagg.terms import ThreatMode, default_colluders

MUCH_CLIPPED = 0.01
MUCH_ROUNDED = 5e-5
_MOST_NAMED = 5  # clipped arrays that are named in a warning
_MOST_ALIKE = 3  # similar log lines about different clients; further ones are only counted


@dataclass
class Traffic:
    """The cost of a round: bytes of the protocol's messages and seconds, by step, and the number of messages."""

    seconds: dict[Step, float] = field(default_factory=dict)
    sent: dict[Step, int] = field(default_factory=dict)
    received: dict[Step, int] = field(default_factory=dict)
    messages: int = 0


class Aggregator:
    """Plays the rounds of one run."""

    def __init__(
        self,
        carrier: Carrier,
        enrolment: Enrolment,
        ledger: Ledger,
        settings: PrivateSettings,
        place: str,
        observer: Observer | None = None,
    ) -> None:
        """Prepare the rounds of a run.

        Args:
            carrier: the connection to the nodes.
            enrolment: the clients behind the nodes.
            ledger: the history of this population; new rounds are appended to it.
            settings: the settings of all rounds.
            place: where Coterie must be in an app, in the words of its engine.
            observer: called after each step and each round.

        """
        self._carrier, self._enrolment, self._ledger = carrier, enrolment, ledger
        self._settings, self._place, self._observer = settings, place, observer
        self._supply = PrekeySupply(enrolment)
        self._notice = ""
        self._advice = ""
        self._rounding_logged = False
        self._protocol_logged = ""
        self._outlook: SessionOutlook | None = None
        self._empty = self._trainings = 0
        self.reasons: dict[str, str] = {}
        """Why clients are not in the last attempted sum, by their names."""
        self.results: list[RoundResult[Mean]] = []
        """The result of each round, in order."""
        self.traffic: list[Traffic] = []

    def mean(self, assignment: Assignment, training: float) -> Mean | None:
        """Return the weighted mean over whole circles of nodes; None if the round had no result.

        ``training`` is the number of seconds that nodes have for the app's function.
        """
        self.reasons = {}
        self._enrolment.gather(assignment.function, 0)
        if assignment.complete is not None:
            assignment = assignment.complete(self._present())
        form = form_under(self._enrolment.roster, assignment.function)
        began = time.monotonic()
        with ExitStack() as closing:
            opened = self._open(assignment, form, closing)
            self._play(opened, assignment, form, training)
        result = opened.result
        self.reasons |= self._enrolment.unknown
        self.results.append(result)
        self._log_result(result, _label(assignment, result.number))
        event = RoundEvent(
            assignment.round,
            result.number,
            assignment.function,
            result.outcome,
            result.tally.selected,
            result.tally.aggregated,
            dict(self.reasons),
            result.reason,
            time.monotonic() - began,
            result.blame.proven,
        )
        notify(self._observer, event)
        if result.value is not None:
            _warn_of_clipping(result.value.clipped)
            self._warn_of_rounding(form, result.tally.aggregated, int(result.value.metrics[form.recipe.weight]))
        return result.value

    def show(self, assignment: Assignment, seconds: float) -> None:
        """Send the models of a confined descent to all connected nodes; they return nothing."""
        present = self._present()
        if assignment.complete is not None:
            assignment = assignment.complete(present)
        nodes = {self._enrolment.node(client): client for client in present}
        trip = Trip(
            assignment.function,
            SHOW,
            dict.fromkeys(nodes, b""),
            seconds,
            about=f"{_label(assignment, assignment.round or 0)}: {SHOW}",
            records=assignment.records,
            shows=True,
        )
        missed: dict[str, str] = {}
        try:
            missed = {nodes[reply.node]: reply.reason for reply in self._carrier.send(trip) if reply.reason}
        except CarrierError as error:  # an error here must not lose the result of all rounds
            LOGGER.warning("nodes were not shown the last model: %s", one_line(error))
        for line in group_by_reason(missed):
            LOGGER.warning("did not judge the last model: %s", line)

    def log_outlook(self, sizes: Sequence[int]) -> None:
        """Log how many nodes may leave a round of such circles, unless the last such line was the same."""
        session = outlook(sorted(sizes), self._settings)
        if sizes and session != self._outlook:
            session.log()
            self._outlook = session

    def _log_protocol(self, protocol: SessionProtocol, clients: int, circle: int) -> None:
        """Log the protocol of the rounds and the reason, unless the last such line was the same."""
        trips = "the papers' protocol"
        if protocol is SessionProtocol.TWO_TRIPS:
            trips = "two trips to every node, or three if many leave"
        reason = f"protocol={self._settings.protocol!r}"
        if self._settings.protocol == AUTO:
            shares = f"n^2 / T = {clients**2 / circle:,.0f} for {clients} nodes in circles of {circle}"
            reason = f"{shares}; two trips are taken up to {MOST_SHARES:,}"
        line = f"rounds take {trips} ({reason})"
        if line != self._protocol_logged:
            LOGGER.info("%s", line)
            self._protocol_logged = line

    def count(self, *, empty: bool) -> None:
        """Count consecutive training rounds without a result, and end the run if there are too many."""
        self._trainings += 1
        self._empty = self._empty + 1 if empty else 0
        if self._empty and self._empty == self._settings.empty_rounds:
            raise self._make_nothing_trained()

    def check_trained(self) -> None:
        """Raise an error at the end of a run in which no training had a result, unless the settings allow it."""
        if self._empty and self._empty == self._trainings and self._settings.empty_rounds:
            raise self._make_nothing_trained()

    def _make_nothing_trained(self) -> NothingTrained:
        rounds = "a round had no result" if self._empty == 1 else f"{self._empty} rounds in a row had no result"
        what = [f"{rounds}, and the model is unchanged", one_line(self.results[-1].reason), self._advice]
        return NothingTrained("; ".join(filter(None, [*what, *group_by_reason(self.reasons)])), self.reasons)

    def _open(self, assignment: Assignment, form: Form, closing: ExitStack) -> "Round[Mean]":
        settings, roster, available = self._settings, self._enrolment.roster, self._enrolment.available()
        arrays, number = assignment.arrays, self._ledger.latest() + 1
        circles = roster.usable()
        cohort = self._cohort(circles, available, assignment.share)
        most, smallest = min(cohort, int(circles.sizes.sum())), int(circles.sizes.min())
        protocol = choose_protocol(settings.protocol, most, smallest, Complete())
        self._log_protocol(protocol, most, smallest)
        prekeys = None
        if protocol is SessionProtocol.TWO_TRIPS:
            prekeys = self._supply.fill(closing.enter_context(self._supply.open_stock()), assignment.function)
            self.reasons |= self._supply.reasons
            cohort = self._cohort(circles, available & prekeys.stocked(roster.names), assignment.share)

        def decode(aggregate: Aggregate) -> Mean:
            return form.decode(arrays, aggregate)

        coordinator: Coordinator[Mean] = Coordinator(
            roster,
            MultiRound(circles, cohort),
            self._ledger,
            SessionSettings(
                form.quantizer.ring.bits,
                form.quantizer.length(form.layout(arrays)),
                shape=lambda clients: replace(self._shape(clients, int(circles.sizes.max())), protocol=protocol),
                minimum=settings.minimum,
                mode=settings.mode,
            ),
            decode,
            prekeys=prekeys,
        )
        task = Task(self._carrier.run, assignment.function, str(number))
        digest = content_digest(assignment.content, form, self._enrolment.run_config, task)
        opened = coordinator.open(number, available, np.random.default_rng(), content=digest)
        self.log_outlook(self._sizes(opened.selected))
        return opened

    def _cohort(self, circles: Circles, available: NDArray[np.bool_], share: float) -> int:
        """Return the size of the cohort if these clients are available."""
        settings = self._settings
        complete = int(circles.sizes[circles.complete(available)].sum())
        asked = max(int(share * complete), settings.minimum if complete >= settings.minimum else 0)
        return settings.cohort or max(asked, int(circles.sizes.max()))

    def _present(self) -> list[str]:
        """Return the clients whose nodes are connected."""
        names = self._enrolment.roster.names
        return [name for name, there in zip(names, self._enrolment.available(), strict=True) if there]

    def _sizes(self, selected: Collection[str]) -> list[int]:
        """Return the sizes of the selected circles."""
        roster, chosen = self._enrolment.roster, set(selected)
        return [len(circle) for circle in roster.active if roster.names[circle[0]] in chosen]

    def _shape(self, clients: int, largest: int) -> SessionShape:
        """Return the shape of a session, with its number of colluders if this is not the default of its terms."""
        if (given := self._settings.colluders) is not None:
            return SessionShape(colluders=given)
        whole, rest = divmod(clients, largest)
        chosen = outlook([largest] * whole + [rest] * bool(rest), self._settings).chosen_colluders
        lowered = self._settings.mode is ThreatMode.ACTIVE_SERVER and chosen != default_colluders(clients)
        return SessionShape(colluders=chosen if lowered else None)

    def _play(self, opened: "Round[Mean]", assignment: Assignment, form: Form, training: float) -> None:
        """Play a round, one trip for each step."""
        traffic = Traffic()
        self.traffic.append(traffic)
        enrolment, asked = self._enrolment, self._describe_request(assignment, form)
        outgoing = opened.invite()
        inviting = True
        while outgoing:
            step = opened.step
            contributing = step in (Step.MASK, Step.CONTRIBUTE)
            trip = Trip(
                assignment.function,
                str(opened.number),
                {enrolment.node(client): message for client, message in outgoing.items()},
                training if contributing else self._settings.deadline,
                about=f"{_label(assignment, opened.number)}: {step}",
                notice=self._notice if inviting else "",
                rosters={enrolment.node(client): enrolment.missing_rosters(client) for client in outgoing}
                if inviting
                else {},
                vouchers=enrolment.vouchers if inviting else b"",
                records=assignment.records if contributing else None,
                asked=asked,
            )
            inviting, self._notice = False, ""
            traffic.sent[step] = sum(len(message) for message in outgoing.values())
            traffic.messages += len(outgoing)
            left = self._send(opened, trip, traffic, _label(assignment, opened.number))
            event = StepEvent(
                assignment.round,
                opened.number,
                assignment.function,
                step,
                len(outgoing),
                left,
                traffic.seconds[step],
                traffic.sent[step],
                traffic.received[step],
            )
            notify(self._observer, event)
            outgoing = opened.close()

    def _send(self, opened: "Round[Mean]", trip: Trip, traffic: Traffic, label: str) -> dict[str, str]:
        """Make a trip, pass the answers to the round, and log and return the nodes that left."""
        names = {self._enrolment.node(client): client for client in opened.selected}
        step, began, received = opened.step, time.monotonic(), 0
        left: dict[str, str] = {}
        alike: Counter[str] = Counter()
        for reply in self._carrier.send(trip):
            client, reason = names[reply.node], reply.reason
            received += len(reply.payload)
            if not reason and (rejected := opened.receive(client, reply.payload)) is not None:
                reason = one_line(rejected.reason)
            if not reason:
                self._enrolment.mark_answered(client)
                continue
            left[client] = reason
            alike[reason] += 1
            if alike[reason] <= _MOST_ALIKE:
                LOGGER.warning("%s leaves %s in step %s: %s", client, label, step, reason)
        for reason, count in alike.items():
            if (more := count - _MOST_ALIKE) > 0:
                LOGGER.warning("%s more leave %s in step %s: %s", more, label, step, reason)
        traffic.seconds[step], traffic.received[step] = time.monotonic() - began, received
        self.reasons |= left
        return left

    def _describe_request(self, assignment: Assignment, form: Form) -> Asked:
        """Return a description of the request to the nodes, by the server's own names."""
        metrics = tuple(metric.name for metric in form.metrics)
        setting = f"{kind_of(assignment.function)}_metrics"
        return Asked(setting, metrics, tuple(assignment.arrays), form.recipe.weight, self._place)

    def _log_result(self, result: "RoundResult[Mean]", label: str) -> None:
        self._advice = ""
        if result.value is not None and any(result.blame):
            LOGGER.warning("%s has a result, but %s", label, result.blame)
        for name in result.blame.proven:
            LOGGER.warning("%s broke the protocol; `coterie roster retire %s` takes its circle out of use", name, name)
        if result.value is None:
            LOGGER.warning("%s: %s: %s", label, result.outcome, result.reason)
            for line in group_by_reason(self.reasons):
                LOGGER.warning("%s has no result: %s", label, line)
            self._advise(result)
            self._notice = f"{label} had no result ({result.outcome}): {one_line(result.reason)}"
            return
        tally = result.tally
        lost = f" ({tally})" if tally.aggregated < tally.selected else ""
        LOGGER.info("%s: one sum over %s clients%s", label, tally.aggregated, lost)

    def _warn_of_rounding(self, form: Form, clients: int, total_weight: int) -> None:
        """Warn once if the scale is far too wide for the nodes' weights, with the loss of precision."""
        error = form.rounding_error(clients, total_weight)
        if form.arrays and error > MUCH_ROUNDED and not self._rounding_logged:
            self._rounding_logged = True
            LOGGER.warning(
                "the mean is rounded to about %.0e of its range (clip), because most_examples is %s and the mean "
                "weight of a node is %.1f. A value close to the largest weight would keep more precision. To change "
                "it, found another population; if all nodes set coterie-announce-weight, it follows from their weights",
                error,
                f"{form.recipe.most_weight:,}",
                total_weight / clients,
            )

    def _advise(self, result: "RoundResult[Mean]") -> None:
        """Log what to change if more nodes left a round than it tolerates."""
        sizes = self._sizes(result.attendance.selected)
        if not isinstance(result.error, RoundAborted) or not sizes:
            return
        session = outlook(sizes, self._settings)
        if session.departures < result.tally.dropped < session.clients:
            self._advice = f"{session.describe()}; {session.advise()}"
            LOGGER.warning("%s", self._advice)


def outlook(sizes: Sequence[int], settings: PrivateSettings) -> SessionOutlook:
    """Return the outlook of a session with circles of these sizes under these settings."""
    return SessionOutlook(tuple(sizes), settings.mode, settings.minimum, settings.colluders)


def _label(assignment: Assignment, number: int) -> str:
    """Return the name of a round: the engine's number and, if it differs, the number in the ledger."""
    kind = "round" if kind_of(assignment.function) == TRAIN else "evaluation of round"
    named = f"{kind} {number if assignment.round is None else assignment.round}"
    return named if assignment.round in (None, number) else f"{named} (sum {number} of the ledger)"


def _warn_of_clipping(clipped: Mapping[str, float]) -> None:
    """Warn about arrays of which many entries were clipped, the worst first."""
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
