"""The plan of a session: the topology for a threat model, its guarantees and its costs."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from coterie.arithmetic.quantize import Quantizer
from coterie.cohorts.circles import circle_sizes
from coterie.cohorts.theory import LEAST_HONEST
from coterie.errors import ConfigError
from coterie.graphs.failures import FEWEST_CLIENTS, ThreatModel
from coterie.graphs.guarantees import majority_threshold, quorum_of
from coterie.graphs.losses import LossLaw
from coterie.graphs.search import Guarantee, search_complete
from coterie.graphs.table import TOPOLOGIES, assess, is_complete, searches, topology_kind
from coterie.graphs.tails import either_log2
from coterie.graphs.topology import Complete
from coterie.planning.collusion import Colluders, check_bits, check_honest, check_lost, check_session, count_colluders
from coterie.planning.costs import Costs, Price, price_colluders, session_costs
from coterie.planning.overview import ShortPlan, bound_words, plan_overview
from coterie.planning.settings import PRIVACY_BITS, RELIABILITY_BITS, PlanSettings
from coterie.reports.findings import Findings, Table
from coterie.reports.words import size
from coterie.secagg.terms import MOST_CLIENTS

#: With fewer clients the complete graph is so cheap that no other is considered.
FEW_CLIENTS = 20
#: Against a malicious server, the complete graph is planned up to this number of clients unless another is chosen,
#: because T holds on no other graph there. In a session of 1,000, a client sends and receives 0.62 MB beside its own
#: vector, agrees on 1,998 keys and checks 2,664 signatures (:func:`~coterie.planning.costs.session_costs`). At 0.05 and
#: 0.25 ms each, this takes under a second of one core. It also expands as many masks as it has neighbours. All of this
#: grows in proportion to the clients of a session, and the server's part with their square.
COMPLETE_CLIENTS = 1_000


@dataclass(frozen=True)
class Plan(ShortPlan):
    """The parameters of a session, their proven bounds, and the costs, compared with those of the complete graph."""

    clients: int
    """The number of clients of a session; of the largest one if there are several."""
    sessions: int
    """The number of sessions: one, unless there are more clients than a session holds."""
    roster: int
    """The number of all clients, from which those of a session are chosen."""
    privacy: int
    """T: only whole circles of at least this many clients are aggregated; 1 without circles."""
    lost: float
    """The probability that a client drops out of a session, independently of the others."""
    minimum: int
    """The fewest clients in a sum, according to the session's terms; clients refuse smaller sums."""
    collusion: float
    """The share of the roster that colludes with the server."""
    active: bool
    colluders: int
    """The largest number of clients of a session that may collude with the server, as stated in its terms."""
    colluders_reason: str
    """The reason for this number, in a sentence."""
    quorum: int | None
    """The number of clients that must confirm the survivors; None against an honest-but-curious server."""
    prices: tuple[Price, ...]
    """Against an active server, what other numbers of colluders would cost."""
    bits: int
    length: int
    guarantee: Guarantee
    costs: Costs
    complete: Costs
    notes: tuple[str, ...]

    @property
    def connection_probability(self) -> float:
        """The chance that two given clients are neighbours."""
        by_degree = min(1.0, self.guarantee.degree / (self.clients - 1))
        return float(getattr(self.guarantee.topology, "probability", by_degree))

    @property
    def graph_title(self) -> str:
        """The name of the graph in a sentence."""
        kind = topology_kind(self.guarantee.topology)
        return (kind.title if kind else "") or type(self.guarantee.topology).__name__

    @property
    def cut(self) -> bool:
        """Whether a malicious server can cut sessions into parts, as on every graph except the complete one."""
        return self.active and not is_complete(self.guarantee.topology, self.clients)

    @property
    def holds(self) -> bool:
        """Whether T holds over many rounds: if there are circles, and sessions cannot be cut into parts."""
        return self.privacy > 1 and not self.cut

    @property
    def promise(self) -> str:
        """What the server learns, in words. The table in SECURITY.md states the conditions."""
        if self.cut:
            return (
                "Weaker promise: T does not hold on this graph. A server that lies can choose who drops out once it "
                "knows the graph. It then learns sums of parts of the session, each of at least two honest clients, "
                "and can subtract parts of several rounds from each other. The bounds are for clients that drop out "
                "independently of the graph."
            )
        sum_only = "The server learns the sum of the clients that are aggregated, and nothing else about them"
        whoever = ", even if it makes clients drop out" if self.active else ""
        sparse = not is_complete(self.guarantee.topology, self.clients)
        may_fail = sparse and self.guarantee.privacy_failure_log2 > -math.inf
        chance = ", but for the probability that a partial sum or an input leaks" if may_fail else ""
        return f"{sum_only}{whoever}{chance}. {self._over_rounds}"

    @property
    def overview(self) -> Findings:
        """The plan in short, for ``print`` and for a notebook."""
        bounds, costs = self.guarantee, self.costs
        rows = [
            ("graph", f"{self.graph_title}, {bounds.degree:,.0f} neighbours each"),
            ("threshold", f"{bounds.threshold:,}"),
            ("fewest clients of a sum", f"{self.minimum:,}"),
            ("colluders withstood", f"{self.colluders:,} ({self.colluders_reason})"),
            ("a partial sum or an input leaks", bound_words(bounds.privacy_failure_log2)),
            ("the session fails", bound_words(bounds.reliability_failure_log2)),
            ("a client sends, receives", f"{size(costs.client_upload_bytes)}, {size(costs.client_download_bytes)}"),
            ("the server receives, sends", f"{size(costs.server_download_bytes)}, {size(costs.server_upload_bytes)}"),
        ]
        server = "a malicious server" if self.active else "an honest-but-curious server"
        headline = f"A session of {self.clients:,} clients against {server}: {self.graph_title}"
        holds = self.holds if self.privacy > 1 else None
        return plan_overview(headline, self.promise, [Table("", ("", ""), rows)], self.notes, holds=holds)

    @property
    def _over_rounds(self) -> str:
        if self.privacy == 1:
            return (
                "This is about one session. Over many rounds nothing is promised without circles: sums over different "
                "clients can be subtracted from each other. Plan with a privacy T for circles of T clients."
            )
        said = f"T = {self.privacy:,} holds over many rounds, because whole circles are aggregated or not at all."
        if self.colluders:
            said += " Colluders in a circle do not count: c of them leave T - c honest members"
            said += f", and all {self.colluders:,} may be in one." if self.active else "."
        return said


def complete_limit(*, active: bool) -> int:
    """Return the largest number of clients for which a session uses the complete graph by default."""
    return COMPLETE_CLIENTS if active else FEW_CLIENTS


def recommend(
    clients: int,
    lost: float,
    *,
    privacy: int = 1,
    largest: int | None = None,
    collusion: float | None = None,
    roster: int | None = None,
    topology: str = PlanSettings.topology,
    privacy_bits: float | None = None,
    reliability_bits: float | None = None,
    active: bool = False,
    length: int = PlanSettings.length,
    precision: int = PlanSettings.precision,
) -> Plan:
    """Return the recommended topology of a session, or the best parameters of a given one.

    ``topology`` is ``auto``, ``cheapest`` or a name in the table of topologies. ``cheapest`` is the one with the fewest
    bytes per client that meets the failure targets. ``auto`` is the same, except against an active server: there it is
    the complete graph up to :data:`COMPLETE_CLIENTS`, because T holds on no other. Without targets and circles, a
    topology whose paper has a rule uses that rule if no client colludes and the server is honest but curious
    (Erdős-Rényi: Choi et al. 2020). All others use targets of 40 bits of privacy and 20 of reliability.

    ``lost`` is the probability that a client drops out of the session, independently of the others. ``privacy`` is T:
    only whole circles of at least this many clients are aggregated, and a dropout excludes its whole circle.
    ``largest`` is the size of the largest circle; by default, that of a roster that is divided evenly. The plan allows
    for a number of missing clients that is rarely exceeded (:mod:`coterie.graphs.losses`), and clients refuse a sum in
    which more are missing. So further losses end a session without a result; they do not make a sum less private. If a
    session of this size fails too often on every graph, the complete graph is planned, and the plan states how often it
    fails.

    ``collusion`` is the share of the ``roster`` that colludes; without a roster, of the session's clients.
    :mod:`coterie.planning.collusion` says how many of them a session is planned for. Without ``collusion``, no client
    colludes with an honest-but-curious server, and with a malicious one as many clients as a session's terms assume.
    More clients than a session holds are divided evenly into several sessions; the plan is for one of them.
    """
    check_lost(lost)
    if clients < FEWEST_CLIENTS:
        raise ConfigError(f"at least {FEWEST_CLIENTS} clients are needed, not {clients}")
    known = searches()
    if topology not in ("auto", "cheapest", *known):
        raise ConfigError(f"topology is auto, cheapest, {', '.join(known)}, not {topology!r}")
    everybody, sessions = clients, math.ceil(clients / MOST_CLIENTS)
    clients = math.ceil(everybody / max(1, sessions))
    roster = everybody if roster is None else roster
    if roster < everybody:
        raise ConfigError(f"a roster of {roster:,} clients is smaller than a session of {everybody:,}")
    rule = TOPOLOGIES[topology].rule if topology in TOPOLOGIES else None
    by_rule = rule and privacy_bits is None and reliability_bits is None and not active and not collusion
    by_rule = by_rule and privacy == 1
    privacy_bits = PRIVACY_BITS if privacy_bits is None else privacy_bits
    reliability_bits = RELIABILITY_BITS if reliability_bits is None else reliability_bits
    check_bits("privacy_bits", privacy_bits)
    check_bits("reliability_bits", reliability_bits)
    # If the session is a random part of the roster, the graph and the draw each get half of the target.
    colluders = count_colluders(clients, roster, collusion, active=active, privacy_bits=privacy_bits + 1)
    by_chance = colluders.exceeded_log2 > -math.inf
    if active and roster > clients:
        check_session(clients, colluders, lost, roster)
    elif roster > clients:
        check_honest(clients, colluders)
    bits = Quantizer(clip=1.0, precision=precision, clients=clients).ring.bits
    law = LossLaw(clients, lost, privacy, largest or int(circle_sizes(roster, privacy).max()))
    search = _Search(law, colluders, privacy_bits + by_chance, reliability_bits, active=active)
    notes: list[str] = []
    if rule and by_rule:
        # Its bounds cover any number of losses, because each client is lost with a probability.
        found, remark = rule(search.complete)
        candidates = [(found, search.complete)]
        notes.append(remark)
    elif topology == "auto" and active and clients <= COMPLETE_CLIENTS:
        candidates = [(search.find_complete(), search.complete)]
    elif topology in ("auto", "cheapest"):
        candidates = [search.find(name) for name in known]
    else:
        candidates = [search.find(topology)]

    def costs_at(degree: float) -> Costs:
        return session_costs(clients, degree, bits, length, lost=lost, active=active, colluders=colluders.number)

    best, model = min(candidates, key=lambda found: costs_at(found[0].degree).client_bytes)
    too_few = law.more_missing(model.missing)
    if sessions * clients > everybody and not by_rule:  # some sessions have one client less, and as many missing
        minimum = max(model.minimum - 1, search.complete.minimum)
        smaller = replace(model, clients=clients - 1, collusion=colluders.number / (clients - 1), minimum=minimum)
        best = _worse(best, assess(smaller, best.topology, best.threshold))
        too_few = max(too_few, LossLaw(clients - 1, lost, law.smallest, law.largest).more_missing(smaller.missing))
    best = replace(
        best,
        privacy_failure_log2=either_log2(best.privacy_failure_log2, colluders.exceeded_log2),
        reliability_failure_log2=either_log2(best.reliability_failure_log2, too_few),
    )
    plan = Plan(
        clients=clients,
        sessions=sessions,
        roster=roster,
        privacy=privacy,
        lost=lost,
        minimum=model.minimum,
        collusion=colluders.of_roster / roster if collusion is None else collusion,
        active=active,
        colluders=colluders.number,
        colluders_reason=colluders.reason,
        quorum=quorum_of(clients, colluders.number) if active else None,
        prices=price_colluders(clients, colluders.number) if active else (),
        bits=bits,
        length=length,
        guarantee=best,
        costs=costs_at(best.degree),
        complete=costs_at(clients - 1),
        notes=(),
    )
    if not by_rule and best.reliability_failure_log2 > -reliability_bits:
        notes.append(_too_much_lost(plan, reliability_bits))
    return replace(plan, notes=(*_several(plan, everybody), *notes, *_remarks(plan, topology)))


class _Search:
    """The search for a graph that withstands the losses and the colluders of a session."""

    def __init__(
        self, law: LossLaw, colluders: Colluders, privacy_bits: float, reliability_bits: float, *, active: bool
    ) -> None:
        self._law, self._bits = law, reliability_bits
        share = colluders.number / law.clients
        # On the complete graph, enough clients must be left at least on average.
        search_complete(ThreatModel(law.clients, law.lost, share, active=active))
        self.complete = ThreatModel(
            law.clients,
            law.lost,
            share,
            privacy_bits=privacy_bits,
            reliability_bits=reliability_bits,
            active=active,
            minimum=colluders.number + LEAST_HONEST,
            independent=True,
        )
        # Half of the allowed failures are reserved for sessions in which more clients are missing than planned.
        half = reliability_bits + (law.lost > 0)
        minimum = law.clients - law.missing(half)
        possible = minimum >= self.complete.minimum
        self._sparse = replace(self.complete, minimum=minimum, reliability_bits=half) if possible else None

    def find(self, name: str) -> tuple[Guarantee, ThreatModel]:
        """Return the cheapest parameters of a topology, and their threat model.

        On the complete graph only the number of lost clients is random, so any number may be missing from a sum as long
        as two honest clients are left. It is also used if no sparse graph meets the targets.
        """
        everybody = self.find_complete()
        if TOPOLOGIES[name].complete or self._sparse is None or everybody.reliability_failure_log2 > -self._bits:
            return everybody, self.complete
        try:
            found = searches()[name](self._sparse)
        except ConfigError:  # the complete graph meets the target, but not with half of it reserved
            return everybody, self.complete
        if is_complete(found.topology, self._law.clients):
            return everybody, self.complete
        return found, self._sparse

    def find_complete(self) -> Guarantee:
        """Return a majority threshold above the shares of colluders; a lower one if the target needs it."""
        model = self.complete
        usual = assess(model, Complete(), max(majority_threshold(model.clients), model.colluding + 1))
        if usual.reliability_failure_log2 <= -self._bits:
            return usual
        try:
            return search_complete(model)
        except ConfigError:  # no threshold meets the target
            return usual


def _too_much_lost(plan: Plan, bits: float) -> str:
    """Return why sessions fail more often than the target, and what would help."""
    larger = "larger sessions"
    circles = ""
    if plan.privacy > 1:
        circles = f", each with its circle of {plan.privacy:,} or more"
        larger += ", smaller circles"
    return (
        f"No graph keeps failed sessions below 2^-{bits:g}: of {plan.clients:,} clients, too many are lost at once"
        f"{circles}. The complete graph is planned, on which a session fails as rarely as on any. What would help: "
        f"{larger}, or fewer clients lost."
    )


def _several(plan: Plan, everybody: int) -> Iterator[str]:
    """Return the consequences of dividing clients among sessions."""
    if plan.sessions == 1:
        return
    larger = everybody - plan.sessions * (plan.clients - 1)
    sizes = f"of {plan.clients:,} clients"
    if larger < plan.sessions:
        sizes = f"{larger:,} of {plan.clients:,} clients and {plan.sessions - larger:,} of {plan.clients - 1:,}"
        if not is_complete(plan.guarantee.topology, plan.clients):
            sizes += f", whose sums have at least {plan.minimum - 1:,}"
    yield (
        f"A session holds at most {MOST_CLIENTS:,} clients, so {everybody:,} take {plan.sessions:,} sessions: {sizes}. "
        f"The server learns {plan.sessions:,} sums instead of one, and each client is hidden among those of its own "
        f"session. Bounds and costs are those of one session; in any of the {plan.sessions:,} privacy or the session "
        f"fails at most {plan.sessions:,} times as often. Divide the clients at random, and keep circles whole."
    )


def _remarks(plan: Plan, topology: str) -> Iterator[str]:
    """Return remarks on the graph and the colluders of the plan."""
    if plan.active and plan.roster == plan.clients:
        yield (
            f"c = {plan.colluders:,} must cover the colluders of the whole roster, not only those of one session: a "
            "server that lies chooses whom it invites. If sessions have only some of the clients, plan with a roster."
        )
    if not plan.cut:
        return
    if plan.clients > COMPLETE_CLIENTS and topology == "auto":
        yield (
            f"Up to {COMPLETE_CLIENTS:,} clients the complete graph is planned against a server that lies; above that "
            "it costs a client too much to be the default. Smaller sessions, or the complete graph, keep T."
        )
    else:
        yield "A sparse graph was chosen. The complete graph, or auto in smaller sessions, keeps T."


def _worse(one: Guarantee, other: Guarantee) -> Guarantee:
    """Return the first guarantee, with the weaker of the two bounds each."""
    return replace(
        one,
        privacy_failure_log2=max(one.privacy_failure_log2, other.privacy_failure_log2),
        reliability_failure_log2=max(one.reliability_failure_log2, other.reliability_failure_log2),
    )
