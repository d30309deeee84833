"""From settings to working parts: who is there, who is selected, what goes wrong, and how updates are aggregated."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from coterie.arithmetic.quantize import Layout, Quantizer
from coterie.cohorts import availability
from coterie.cohorts.availability import Availability
from coterie.cohorts.circles import Batches, Reals, random_batches, similar_batches
from coterie.cohorts.policies import MultiRound, Policy, make_policy, partition
from coterie.cohorts.roster import Client, Roster
from coterie.crypto.entropy import DeterministicEntropy, Entropy
from coterie.crypto.signing import Identity
from coterie.graphs.topology import Complete, ErdosRenyi, Topology
from coterie.planning.session import FEW_CLIENTS, recommend
from coterie.privacy import Noise, NoiseKind, NoisyQuantizer, Release, least_aggregated
from coterie.runs.config import RunConfig
from coterie.runs.federation import Federation
from coterie.secagg.server import Step
from coterie.training.local import LocalSGD
from coterie.training.schedules import Cosine, Curriculum, Inverse, Milestones, Schedule
from coterie.training.strategies import FedAvg, LocalOnly, Strategy, centralised
from coterie.training.streams import stream, torch_seed
from coterie.transports.faults import Fault, Faults, Kind
from coterie.transports.rounds import SessionSettings


def make_availability(config: RunConfig, federation: Federation) -> Availability:
    """Say who is absent how often."""
    settings, clients = config.availability, config.clients.count
    match settings.kind:
        case "equal":
            return availability.equal(clients, settings.dropout)
        case "heterogeneous":
            return availability.heterogeneous(clients, stream(config.seed, "dropout levels"))
        case "diurnal":
            phases = np.arange(clients) / clients
            return availability.Diurnal(phases, settings.low, settings.high, settings.period)
    labels = federation.labels if federation.labels is not None else np.empty(0, np.int64)
    return availability.label_dependent(labels, list(federation.parts.values()))


def make_faults(config: RunConfig, number: int) -> Faults:
    """Decide what goes wrong in round ``number``; the losses of all steps together have the probability set."""
    settings = config.faults
    each = 1 - (1 - settings.dropout) ** (1 / len(settings.steps))
    rules = [Fault(Kind.DROP, Step(step), probability=each) for step in settings.steps if each]
    if settings.late:
        rules.append(Fault(Kind.DELAY, Step.MASK, probability=settings.late))
    return Faults(torch_seed(config.seed, "faults", number), tuple(rules))


def make_identities(config: RunConfig, names: tuple[str, ...], secret: bytes) -> dict[str, Identity]:
    """Derive the simulated clients' signing keys, where they sign, from what only they know."""
    entropy = DeterministicEntropy(secret)
    active = config.aggregation.threat == "active-server"
    return {name: Identity.generate(entropy, f"identity of {name}") for name in names} if active else {}


def noise_entropy(secret: bytes, number: int, name: str) -> Entropy:
    """Return a client's noise in a round, derived from what only the clients know.

    A round that is repeated after a crash then has the same noise. With fresh noise, the server would see the same
    sum twice and average the noise away.
    """
    return DeterministicEntropy(secret + f"/noise/{number}/{name}".encode())


def make_roster(
    config: RunConfig, names: tuple[str, ...], dropout: Reals, identities: Mapping[str, Identity]
) -> Roster:
    """Put the clients into circles for good; of one each, where the policy protects nobody over many rounds."""
    rng = stream(config.seed, "circles")
    cohort, count = config.cohort, len(names)
    if cohort.policy == "partition":
        batches = partition(count, cohort.size, rng).batches
    elif cohort.policy == "multi-round" and cohort.circles == "similar":
        batches = similar_batches(dropout, cohort.privacy, rng)
    elif cohort.policy == "multi-round":
        batches = random_batches(count, cohort.privacy, rng)
    else:
        batches = Batches.of([[client] for client in range(count)])
    clients = [Client(name, identities[name].public if identities else b"") for name in names]
    return Roster.found(clients, batches, batches.privacy)


def choose_policy(config: RunConfig, roster: Roster, dropout: Reals) -> Policy:
    """Return the selection policy over the roster's circles."""
    cohort = config.cohort
    if cohort.policy == "multi-round":
        return MultiRound(roster.batches(), cohort.size, cohort.mode, cohort.survival)
    if cohort.policy == "partition":
        return MultiRound(roster.batches(), cohort.size)
    return make_policy(cohort.policy, dropout, cohort.size, stream(config.seed, "policy"))


def largest_cohort(config: RunConfig, roster: Roster, policy: Policy) -> int:
    """Return the most clients that can be selected at once."""
    if isinstance(policy, MultiRound):
        sizes = np.sort(roster.batches().sizes)[::-1]
        return int(sizes[: policy.wanted].sum())
    return len(roster.clients) if config.cohort.policy == "iid" else config.cohort.size


@dataclass(frozen=True)
class Protection:
    """How updates travel: the session's parameters and the encoding, and with noise what every sum is worth."""

    session: SessionSettings
    codec: Quantizer | NoisyQuantizer
    release: Release | None

    def __str__(self) -> str:
        session = self.session
        threshold = f"{session.threshold} shares open" if session.threshold else "a majority of shares opens"
        circles = "whole circles only" if session.aligned else "whoever survives"
        return (
            f"{session.length:,} ring elements of {session.bits} bits; {type(session.topology).__name__} graph, "
            f"{threshold} a secret; {circles}, at least {session.minimum} clients."
        )


def make_protection(
    config: RunConfig, roster: Roster, policy: Policy, layout: Layout, strategy: Strategy
) -> Protection:
    """Choose ring, graph and threshold, and the clients' shares of the noise."""
    aggregation, cohort = config.aggregation, config.cohort
    most = largest_cohort(config, roster, policy)
    weight = max(strategy.weight(name) for name in strategy.clients)
    quantizer = Quantizer(aggregation.clip, aggregation.precision, most, weight)
    noisy = _noisy(config, roster, quantizer, layout) if config.noise.kind != "none" else None
    codec = noisy or quantizer
    topology: Topology = Complete()
    threshold, colluders = aggregation.threshold or None, None
    if aggregation.topology == "erdos-renyi" and aggregation.connection:
        topology, colluders = ErdosRenyi(aggregation.connection), int(aggregation.collusion * cohort.size)
    elif aggregation.topology != "complete" and not (aggregation.topology == "auto" and cohort.size <= FEW_CLIENTS):
        plan = recommend(
            cohort.size,
            aggregation.dropout,
            collusion=aggregation.collusion,
            topology=aggregation.topology,
            active=aggregation.threat == "active-server",
            length=codec.length(layout),
            precision=aggregation.precision,
        )
        topology, threshold = plan.guarantee.topology, threshold or plan.guarantee.threshold
        colluders = plan.colluders
    session = SessionSettings(
        bits=codec.ring.bits,
        length=codec.length(layout),
        topology=topology,
        threshold=threshold,
        minimum=cohort.minimum,
        colluders=colluders,
        aligned=roster.privacy > 1,
    )
    return Protection(session, codec, Release(noisy.noise, noisy.sensitivity) if noisy else None)


def _noisy(config: RunConfig, roster: Roster, quantizer: Quantizer, layout: Layout) -> NoisyQuantizer:
    noise, cohort = config.noise, config.cohort
    least = least_aggregated([len(circle) for circle in roster.circles], cohort.minimum)
    honest = least - int(config.aggregation.collusion * cohort.size)
    stddev = noise.multiplier * noise.clip_norm / quantizer.step
    shares = Noise.for_sum(NoiseKind(noise.kind), stddev, honest)
    return NoisyQuantizer(quantizer, noise.clip_norm, layout.size, shares)


def rehearse(config: RunConfig, federation: Federation) -> None:
    """Put everything together once, so that what contradicts the data or the model shows before a run begins."""
    names = tuple(federation.parts)
    dropout = make_availability(config, federation).probability(1)
    strategy = make_strategy(config, federation)
    if config.training.algorithm == "fedavg":
        roster = make_roster(config, names, dropout, {})
        policy = choose_policy(config, roster, dropout)
        make_protection(config, roster, policy, layout_of(strategy), strategy)


def layout_of(strategy: Strategy) -> Layout:
    """Return the shapes of what is aggregated, which are those of a model."""
    return Layout.of(next(iter(strategy.models().values())))


def make_strategy(config: RunConfig, federation: Federation) -> Strategy:
    """Return the algorithm, at its beginning."""
    training = config.training
    work = LocalSGD(
        training.learning_rate,
        training.epochs,
        training.batch_size,
        training.momentum,
        training.weight_decay,
        training.shuffle,
    )
    curriculum = Curriculum(federation.parts, work, config.seed, make_schedule(config))
    model = federation.problem.model
    match training.algorithm:
        case "centralised":
            return centralised(model, curriculum)
        case "local-only":
            return LocalOnly(model, curriculum)
    return FedAvg(
        model,
        curriculum,
        learning_rate=training.server_learning_rate,
        momentum=training.server_momentum,
        weighting=config.clients.weighting,
    )


def make_schedule(config: RunConfig) -> Schedule:
    """Return how the learning rate changes."""
    schedule = config.training.schedule
    match schedule.kind:
        case "milestones":
            return Milestones(schedule.milestones, schedule.factor)
        case "inverse":
            return Inverse(schedule.decay)
        case "cosine":
            return Cosine(config.rounds, schedule.floor)
    return Milestones()
