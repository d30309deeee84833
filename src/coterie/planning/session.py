"""The plan of a session: the topology to take for a threat model, what it promises, and what it costs."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from coterie.arithmetic.quantize import Quantizer
from coterie.errors import ConfigError
from coterie.graphs.failures import ThreatModel
from coterie.graphs.search import Guarantee, search_complete
from coterie.graphs.table import TOPOLOGIES, assess, is_complete, searches, topology_kind
from coterie.planning.collusion import check_lost, check_session, count_colluders, either_log2
from coterie.planning.costs import Costs, Price, price_colluders, session_costs
from coterie.secagg.terms import MOST_CLIENTS

#: With fewer clients the complete graph is cheap enough that nothing else is worth a thought.
FEW_CLIENTS = 20
#: Against a server that lies, the complete graph is planned up to so many clients unless another is asked for: T holds
#: on no other graph there. A client of 1,000 sends and receives 0.62 MB beside its own vector, agrees on 1,998 keys and
#: checks 2,999 signatures (:func:`~coterie.planning.costs.session_costs`), which is under a second of one core at 0.05
#: and 0.25 ms each, and expands as many masks as it has neighbours. All of that grows in proportion to the clients of a
#: session, and the server's part with their square.
COMPLETE_CLIENTS = 1_000


@dataclass(frozen=True)
class Plan:
    """Parameters of a session, the bounds proven for them, and what it costs beside the complete graph."""

    clients: int
    """Clients of a session, the largest one if there are several."""
    sessions: int
    """How many sessions it takes: one, unless there are more clients than a session holds."""
    roster: int
    """Clients in all, from which those of a session are chosen."""
    lost: float
    """The share of a session's clients that drop out in it."""
    collusion: float
    """The share of the roster that colludes with the server."""
    active: bool
    colluders: int
    """The most clients of a session that may collude with the server; what its terms take."""
    colluders_reason: str
    """Why so many, in a sentence."""
    quorum: int | None
    """Clients that must confirm who survived; nobody need where the server follows the protocol."""
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
        """What the graph is called in a sentence."""
        kind = topology_kind(self.guarantee.topology)
        return (kind.title if kind else "") or type(self.guarantee.topology).__name__

    @property
    def holds(self) -> bool:
        """Whether T holds over many rounds: on the complete graph, or for a server that follows the protocol."""
        return not self.active or is_complete(self.guarantee.topology, self.clients)

    @property
    def promise(self) -> str:
        """What the server learns, in plain words; the table in SECURITY.md has the conditions."""
        left = " Colluders in a circle do not count: c of them leave T - c honest members"
        left += f", and all {self.colluders:,} may be in one." if self.active else "."
        sum_only = "The server learns the sum of the clients that are aggregated, and nothing else about them"
        if not self.holds:
            return (
                "Weaker promise: T does not hold on this graph. A server that lies can choose who drops out once it "
                "knows the graph. It then learns sums of parts of the session, each of at least two honest clients, "
                "and can subtract parts of several rounds from each other. The bounds are for clients that drop out "
                "independently of the graph."
            )
        if self.active:
            return f"{sum_only}, whoever it makes drop out. T holds over many rounds.{left if self.colluders else ''}"
        chance = "" if is_complete(self.guarantee.topology, self.clients) else ", but for the probability above"
        return f"{sum_only}{chance}. T holds over many rounds.{left if self.colluders else ''}"


def complete_limit(*, active: bool) -> int:
    """Return up to how many clients a session is on the complete graph unless another is asked for."""
    return COMPLETE_CLIENTS if active else FEW_CLIENTS


def recommend(
    clients: int,
    lost: float,
    *,
    collusion: float | None = None,
    roster: int | None = None,
    topology: str = "auto",
    privacy_bits: float | None = None,
    reliability_bits: float | None = None,
    active: bool = False,
    length: int = 100_000,
    precision: int = 16,
) -> Plan:
    """Return the topology to take for a session, or the best parameters of the one asked for.

    ``topology`` is ``auto``, ``cheapest`` or a name in the table of topologies. ``cheapest`` costs a client the fewest
    bytes of all that meet the failure targets. So does ``auto``; but against an active server it is the complete graph
    up to :data:`COMPLETE_CLIENTS`, because T holds on no other there. Without targets, a topology whose paper has a
    rule takes that rule if nobody colludes and the server does not lie (Erdős-Rényi: Choi et al. 2020), and the others
    take 40 bits of privacy and 20 of reliability.

    ``lost`` is the share of the session's clients that drop out in it. ``collusion`` is the share of the ``roster``
    that colludes; without a roster, that is the session's clients. :mod:`coterie.planning.collusion` says how many of
    them a session is planned for. Without ``collusion`` nobody colludes with a server that follows the protocol, and
    with one that lies as many clients as a session's terms assume.

    More clients than a session holds are divided into several sessions, as evenly as can be; the plan is for one of
    them.
    """
    check_lost(lost)
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
    privacy_bits = 40 if privacy_bits is None else privacy_bits
    # Chance has two places where the session is a random part of the roster: half of the target is for each.
    colluders = count_colluders(clients, roster, collusion, active=active, privacy_bits=privacy_bits + 1)
    by_chance = colluders.exceeded_log2 > -math.inf
    if active and roster > clients:
        check_session(clients, colluders, lost, roster)
    bits = Quantizer(clip=1.0, precision=precision, clients=clients).ring.bits
    model = ThreatModel(
        clients,
        lost,
        colluders.number / clients,
        privacy_bits=privacy_bits + by_chance,
        reliability_bits=20 if reliability_bits is None else reliability_bits,
        active=active,
    )
    notes: list[str] = []
    if rule and by_rule:
        found, remark = rule(model)
        candidates = [found]
        notes.append(remark)
    elif topology == "auto" and active and clients <= COMPLETE_CLIENTS:
        candidates = [search_complete(model)]
    elif topology in ("auto", "cheapest"):
        candidates = [search(model) for search in known.values()]
    else:
        candidates = [known[topology](model)]

    def price(found: Guarantee) -> Costs:
        return session_costs(clients, found.degree, bits, length, lost=lost, active=active)

    best = min(candidates, key=lambda found: price(found).client_bytes)
    if sessions * clients > everybody and not by_rule:  # some sessions have one client less
        smaller = replace(model, clients=clients - 1, collusion=colluders.number / (clients - 1))
        best = _worse(best, assess(smaller, best.topology, best.threshold))
    privacy = either_log2(best.privacy_failure_log2, colluders.exceeded_log2)
    best = replace(best, privacy_failure_log2=privacy) if by_chance else best
    plan = Plan(
        clients=clients,
        sessions=sessions,
        roster=roster,
        lost=lost,
        collusion=colluders.of_roster / roster if collusion is None else collusion,
        active=active,
        colluders=model.colluding,
        colluders_reason=colluders.reason,
        quorum=model.quorum if active else None,
        prices=price_colluders(clients, model.colluding) if active else (),
        bits=bits,
        length=length,
        guarantee=best,
        costs=price(best),
        complete=session_costs(clients, clients - 1, bits, length, lost=lost, active=active),
        notes=(),
    )
    return replace(plan, notes=(*_several(plan, everybody), *notes, *_remarks(plan, topology)))


def _several(plan: Plan, everybody: int) -> Iterator[str]:
    """Say what it means to divide clients among sessions."""
    if plan.sessions == 1:
        return
    larger = everybody - plan.sessions * (plan.clients - 1)
    sizes = f"of {plan.clients:,} clients"
    if larger < plan.sessions:
        sizes = f"{larger:,} of {plan.clients:,} clients and {plan.sessions - larger:,} of {plan.clients - 1:,}"
    yield (
        f"A session holds at most {MOST_CLIENTS:,} clients, so {everybody:,} take {plan.sessions:,} sessions: {sizes}. "
        f"The server learns {plan.sessions:,} sums instead of one, and each client is hidden among those of its own "
        f"session. Bounds and costs are those of one session; in any of the {plan.sessions:,} privacy or the session "
        f"fails at most {plan.sessions:,} times as often. Divide the clients at random, and keep circles whole."
    )


def _remarks(plan: Plan, topology: str) -> Iterator[str]:
    """Say what a user of this plan has to know about its graph and its colluders."""
    if plan.active and plan.roster == plan.clients:
        yield (
            f"c = {plan.colluders:,} must cover the colluders of the whole roster, not only those of one session: a "
            "server that lies chooses whom it invites. If sessions have only some of the clients, plan with a roster."
        )
    if plan.holds or not plan.active:
        return
    if plan.clients > COMPLETE_CLIENTS and topology == "auto":
        yield (
            f"Up to {COMPLETE_CLIENTS:,} clients the complete graph is planned against a server that lies; above that "
            "it costs a client too much to be the default. Smaller sessions, or the complete graph, keep T."
        )
    elif not plan.holds:
        yield "A sparse graph was asked for. The complete graph, or auto in smaller sessions, keeps T."


def _worse(one: Guarantee, other: Guarantee) -> Guarantee:
    """Return the first guarantee with the weaker bounds of both."""
    return replace(
        one,
        privacy_failure_log2=max(one.privacy_failure_log2, other.privacy_failure_log2),
        reliability_failure_log2=max(one.reliability_failure_log2, other.reliability_failure_log2),
    )
