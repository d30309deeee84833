"""The plan of a whole deployment: all parameters of a run from population, losses, colluders, model and epsilon."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Unpack

from coterie.cohorts.theory import TradeOff
from coterie.errors import ConfigError
from coterie.graphs.failures import FEWEST_CLIENTS, part_of
from coterie.graphs.table import topology_name
from coterie.planning.collusion import share_of
from coterie.planning.costs import Costs
from coterie.planning.overview import ShortPlan, bound_words, plan_overview
from coterie.planning.population import RULE, PopulationOptions, PopulationPlan, plan_population
from coterie.planning.seconds import SessionSeconds
from coterie.planning.session import Plan, recommend
from coterie.planning.settings import PRIVACY_BITS, PlanSettings
from coterie.planning.two_trips import ProtocolPlan, plan_protocol
from coterie.privacy.calibration import noise_multiplier
from coterie.reports.findings import Findings, Table
from coterie.reports.words import size
from coterie.secagg.protocols import SessionProtocol

if TYPE_CHECKING:
    from collections.abc import Sequence

NOISE_KIND = "discrete-gaussian"
_SMALLEST_LOG2 = -1074.0  # JSON has no infinity: impossible events get the exponent of the smallest float64


@dataclass(frozen=True)
class DeploymentPlan(ShortPlan):
    """One T with its rounds, its sessions and its noise."""

    population: PopulationPlan
    choice: TradeOff
    """T, the cohorts, and the clients left after loss."""
    session: Plan
    """The largest session of a round."""
    protocols: ProtocolPlan
    rounds: int
    precision: int
    delta: float
    epsilon: float | None
    """The differential privacy of a client over all rounds; None without noise."""
    multiplier: float | None
    """The deviation of the noise in a sum in units of the clipping norm. A run adds a little for rounding."""

    @property
    def costs(self) -> Costs:
        """Bytes and operations of a session under its protocol."""
        return self.protocols.price.costs

    @property
    def trips(self) -> int:
        """The number of trips to every client in a round, if few are lost."""
        return self.protocols.price.trips

    @property
    def threshold(self) -> int:
        """The number of shares that reconstruct a secret; in two trips against a malicious server, a quorum."""
        quorum = self.session.quorum
        if quorum and self.protocols.protocol is SessionProtocol.TWO_TRIPS:
            return quorum
        return self.session.guarantee.threshold

    @property
    def holds(self) -> bool:
        """Whether every honest client is hidden together with another honest one, over any number of rounds."""
        return self.session.holds and self.choice.protects

    def settings(self) -> dict[str, Any]:
        """Return the settings of ``coterie run`` that simulate this deployment."""
        plan, session = self.population, self.session
        if len(set(plan.absent)) > 1:
            raise ConfigError("the settings of a run have one probability of absence, and this plan has several")
        share = float(share_of(part_of(plan.collusion, plan.population), plan.population))
        noise = {"noise.kind": NOISE_KIND, "noise.epsilon": self.epsilon, "noise.delta": self.delta}
        return {
            "rounds": self.rounds,
            "clients.count": plan.population,
            "availability.kind": "equal",
            "availability.dropout": plan.absent[0],
            "faults.dropout": plan.lost,
            "cohort.policy": "multi-round",
            "cohort.size": plan.cohort,
            "cohort.privacy": self.choice.privacy,
            **({"cohort.survival": round(1 - plan.lost, 12)} if plan.over_select else {}),
            "aggregation.threat": "active-server" if plan.active else "honest-but-curious",
            "aggregation.topology": topology_name(session.guarantee.topology),
            "aggregation.protocol": str(self.protocols.protocol),
            "aggregation.dropout": plan.lost,
            "aggregation.collusion": share,
            "aggregation.precision": self.precision,
            **(noise if self.epsilon is not None else {}),
        }

    @property
    def overview(self) -> Findings:
        """The plan in short, for ``print`` and for a notebook."""
        plan, choice, bounds, costs = self.population, self.choice, self.session.guarantee, self.costs
        noise = "no bound without noise"
        if self.epsilon is not None:
            noise = f"{self.epsilon:g} at delta {self.delta:g}, noise {self.multiplier:.4g} times the clipping norm"
        rows = [
            ("honest members left in a circle, T - c", f"{choice.honest:,} (c = {choice.colluders:,})"),
            ("clients aggregated in a round", f"{choice.aggregated:,.4g} of {plan.cohort:,} on average"),
            ("threshold, neighbours", f"{self.threshold:,}, {bounds.degree:,.0f}"),
            ("a client sends, receives", f"{size(costs.client_upload_bytes)}, {size(costs.client_download_bytes)}"),
            ("a session fails", bound_words(bounds.reliability_failure_log2)),
            ("a partial sum or an input leaks", bound_words(bounds.privacy_failure_log2)),
            ("epsilon of a client, all rounds", noise),
        ]
        headline = f"{plan.population:,} clients in cohorts of {plan.cohort:,}, {self.rounds:,} rounds: "
        headline += f"T = {choice.privacy:,}, {self.session.graph_title}"
        table = Table("", ("", ""), rows)
        return plan_overview(headline, self.session.promise, [table], self.session.notes, holds=self.holds)

    def as_dict(self, seconds: SessionSeconds | None = None) -> dict[str, Any]:
        """Return plain values for JSON; ``seconds`` are None if nothing was measured."""
        plan, choice, session, guarantee = self.population, self.choice, self.session, self.session.guarantee
        return {
            "population": plan.population,
            "cohort": plan.cohort,
            "absent": list(plan.absent),
            "lost": plan.lost,
            "collusion": plan.collusion,
            "active_server": plan.active,
            "rounds": self.rounds,
            "length": session.length,
            "precision": self.precision,
            "privacy": choice.privacy,
            "colluders_in_circle": choice.colluders,
            "honest_in_circle": choice.honest,
            "multi_round_privacy_holds": self.holds,
            "promise": session.promise,
            "over_select": plan.over_select,
            "over_selection": choice.over_selection,
            "selected": choice.cardinality,
            "aggregated": choice.aggregated,
            "skipped_rounds": choice.skipped,
            "session_clients": session.clients,
            "colluders_in_session": session.colluders,
            "topology": topology_name(guarantee.topology),
            "degree": guarantee.degree,
            "threshold": self.threshold,
            "quorum": session.quorum,
            "minimum": session.minimum,
            "protocol": str(self.protocols.protocol),
            "trips": self.trips,
            **{f"round_{name}": value for name, value in asdict(self.costs).items()},
            "seconds": seconds and {"client": seconds.client, "server": seconds.server},
            "leak_log2": max(guarantee.privacy_failure_log2, _SMALLEST_LOG2),
            "failure_log2": max(guarantee.reliability_failure_log2, _SMALLEST_LOG2),
            "epsilon": self.epsilon,
            "delta": self.delta if self.epsilon is not None else None,
            "noise_multiplier": self.multiplier,
            "notes": list(session.notes),
        }


def plan_deployment(
    population: int,
    cohort: int,
    absent: "Sequence[float]",
    *,
    rounds: int,
    length: int = PlanSettings.length,
    precision: int = PlanSettings.precision,
    epsilon: float | None = PlanSettings.epsilon,
    delta: float = PlanSettings.delta,
    **options: Unpack[PopulationOptions],
) -> DeploymentPlan:
    """Plan all rounds, their sessions and their noise for the recommended T, or for T = ``privacy``.

    The other options are those of :func:`~coterie.planning.population.plan_population`.

    Raises :class:`ConfigError` with the reason and advice if there is no such plan.
    """
    rows = plan_population(population, cohort, absent, **options, simulate_gaps=False)
    choice = rows.recommended if options.get("privacy") is None else rows.main[0].expected
    if choice is None:
        raise ConfigError(
            f"no T can be recommended for these numbers; the rule: {RULE}. What would help: a larger cohort or "
            "population, fewer clients absent or lost, or fewer colluders. A T of your own can be planned too"
        )
    if rows.notes:
        raise ConfigError(rows.notes[0])
    multiplier = noise_multiplier(epsilon, rounds, delta) if epsilon is not None else None
    # A server that lies can cut a sparse session into parts, and the sum of a part has less noise than is planned.
    topology = "complete" if rows.active and epsilon is not None else PlanSettings.topology
    session = recommend(
        max(FEWEST_CLIENTS, choice.most_clients),
        rows.lost,
        privacy=choice.privacy,
        collusion=rows.collusion,
        roster=population,
        topology=topology,
        active=rows.active,
        privacy_bits=options.get("privacy_bits", PRIVACY_BITS),
        length=length,
        precision=precision,
    )
    protocols = plan_protocol(session, choice.privacy)
    return DeploymentPlan(rows, choice, session, protocols, rounds, precision, delta, epsilon, multiplier)
