"""The audit of one sum in words, tables and pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

from coterie.attacks.finding import AttackFinding, CardLine, Effect, WordTable
from coterie.attacks.one_sum.bounds import DOUBT, Bound, ceiling
from coterie.attacks.one_sum.figures import draw_noise, draw_pairs
from coterie.reports.words import Level, count

if TYPE_CHECKING:
    from coterie.attacks.one_sum.measure import OneSum

EXAMPLE, CLIENT, CRAFTED = "example", "client", "crafted"
PAIRS = {
    EXAMPLE: "one example replaced",
    CLIENT: "another client's update",
    CRAFTED: "the worst direction",
}
"""What the two updates are: one client's, with one example or another in its place; those of two clients; or any of the
norm that updates are clipped to, this way and that, where other clients' updates scatter least."""
_SATURATED = 0.9  # of the ceiling: from there on, observations are too few to tell
_FAR = 1000  # deviations: beyond, the distance measures the ridge on directions nobody moves in
_REMARKS = (
    "Without noise there is no finite ε: whatever bound is shown, another pair of updates or more observations may "
    "show a larger one. A bound of 0 says that nothing was shown, not that nothing leaks.",
    "The worst direction is one in which other clients' updates do not move at all, such as the weights of a pixel "
    "that is never on. No client would be moved there by its data either, but a private mechanism must hide any.",
    "This is the limit of every defence here: circles and masks keep a sum from being taken apart, and do not change "
    "what one sum says.",
)


@dataclass(frozen=True)
class Audited:
    """One audit: with how many clients, of which pair, with how much noise."""

    clients: int
    pair: str
    multiplier: float
    distance: float
    """Of the two hypotheses in deviations, by the normal approximation."""
    bound: Bound


@dataclass(frozen=True)
class Shown:
    """What the trials of one audit show together."""

    epsilon: float
    """The median of the lower bounds."""
    least: float
    most: float
    distance: float
    bounds: Sequence[Bound]

    @classmethod
    def of(cls, audits: Sequence[Audited]) -> "Shown":
        """Put trials together."""
        bounds = [one.bound for one in audits]
        epsilons = [one.epsilon for one in bounds]
        return cls(median(epsilons), min(epsilons), max(epsilons), median(one.distance for one in audits), bounds)


PlainAudits: TypeAlias = Mapping[tuple[int, str], Shown]
NoisyAudits: TypeAlias = Mapping[tuple[int, float], Shown]


def tell(attack: "OneSum", audits: Sequence[Sequence[Audited]], gap: float) -> AttackFinding:
    """Tell what the audits of all trials show."""
    together = [(same[0], Shown.of(same)) for same in zip(*audits, strict=True)]
    plain = {(one.clients, one.pair): shown for one, shown in together if not one.multiplier}
    noisy = {(one.clients, one.multiplier): shown for one, shown in together if one.multiplier}
    most = ceiling(attack.tries - attack.tries // 2, attack.delta)
    exceeded = any(shown.most > attack.limit(multiplier) for (_, multiplier), shown in noisy.items())
    worst = {clients: max((plain[clients, pair] for pair in PAIRS), key=_epsilon) for clients in attack.cohorts}
    return AttackFinding(
        level=_level(worst, most, exceeded=exceeded),
        headline=_headline(plain, worst, most, exceeded=exceeded),
        setting=_setting(attack, most, gap),
        measures={
            "ceiling": most,
            "confidence": 1 - DOUBT,
            "session_gap": gap,
            "sums": [
                {
                    "clients": one.clients,
                    "pair": one.pair,
                    "noise_multiplier": one.multiplier,
                    **asdict(shown),
                    "epsilon_limit": attack.limit(one.multiplier) if one.multiplier else None,
                }
                for one, shown in together
            ],
        },
        tables=[_plain_table(plain, most), _noise_table(attack, noisy)],
        card=[*_plain_lines(attack, worst, most), *_noise_lines(attack, exceeded=exceeded)],
        plots=[draw_pairs(plain, attack.cohorts, PAIRS, most), draw_noise(noisy, attack.cohorts, attack.limit)],
        remarks=_REMARKS,
    )


def _epsilon(shown: Shown) -> float:
    return shown.epsilon


def _level(worst: Mapping[int, Shown], most: float, *, exceeded: bool) -> Level:
    epsilon = max(shown.epsilon for shown in worst.values())
    if exceeded or epsilon >= _SATURATED * most:
        return Level.DANGER
    return Level.CAUTION if epsilon else Level.NOTHING


def _headline(plain: PlainAudits, worst: Mapping[int, Shown], most: float, *, exceeded: bool) -> str:
    if exceeded:
        return "An audit shows more than noise allows: the noise is not what it is said to be."
    if not any(shown.epsilon for shown in worst.values()):
        return "So few sums show nothing, which proves nothing: without noise there is no finite ε."
    real = ", ".join(f"ε ≥ {plain[clients, CLIENT].epsilon:.1f} for {clients} clients" for clients in worst)
    least = min(shown.epsilon for shown in worst.values())
    return (
        f"One sum without noise is not a private mechanism. Which of two real updates is in it: {real}. In the worst "
        f"direction: ε ≥ {least:.1f} for any, where {most:.1f} is the most that so many sums can show."
    )


def _plain_lines(attack: "OneSum", worst: Mapping[int, Shown], most: float) -> list[CardLine]:
    return [
        CardLine(
            attack.title,
            f"a sum of {clients} without noise",
            Effect.NOT_ELIMINATED,
            f"ε ≥ {shown.epsilon:.1f} of the {most:.1f} that could be shown: other clients are no noise of known size",
        )
        for clients, shown in worst.items()
    ]


def _noise_lines(attack: "OneSum", *, exceeded: bool) -> list[CardLine]:
    outcome = Effect.NOT_ELIMINATED if exceeded else Effect.REDUCED
    return [
        CardLine(
            attack.title,
            f"a sum with noise of {multiplier:g} times the norm",
            outcome,
            f"ε ≤ {attack.limit(multiplier):.2f} by proof, whatever the cohort",
        )
        for multiplier in attack.noise
    ]


def _setting(attack: "OneSum", most: float, gap: float) -> str:
    return (
        f"{attack.data}, {attack.model}, {count(attack.examples, 'example')} a client, "
        f"{count(attack.epochs, 'local epoch')}; {count(attack.population, 'client')} to draw from, as many simulated "
        f"by the attacker, all updates clipped to the median norm. {count(attack.tries, 'sum')} under each hypothesis, "
        f"half of them to choose the test; {count(attack.trials, 'trial')}, of which medians are shown. Bounds hold "
        f"with a confidence of {1 - DOUBT:.0%} at δ = {attack.delta:g}, and cannot exceed {most:.2f} with so many "
        f"sums. Sums are computed in the clear; one real session of each size opens the same sum, to {gap:.1g} of the "
        "norm in every entry (rounding)."
    )


def _plain_table(plain: PlainAudits, most: float) -> WordTable:
    rows = [
        (
            f"{clients} clients, {PAIRS[pair]}",
            f"{shown.distance:.2f}" if shown.distance < _FAR else f"over {_FAR:,}",
            f"{shown.bounds[0].hits:,} / {shown.bounds[0].false_alarms:,} of {shown.bounds[0].tries:,}",
            f"{shown.epsilon:.2f} ({shown.least:.2f} to {shown.most:.2f})",
            "none",
        )
        for (clients, pair), shown in plain.items()
    ]
    return WordTable(
        "One sum, without noise",
        ("sum", "distance μ", "right / wrong (first trial)", "ε at least", "ε at most"),
        rows,
        "μ is how many deviations of the others' sum lie between the two updates, by the normal approximation. "
        f"The most that could be shown is {most:.2f}.",
    )


def _noise_table(attack: "OneSum", noisy: NoisyAudits) -> WordTable:
    rows = [
        (
            f"{multiplier:g}",
            *(f"{noisy[clients, multiplier].epsilon:.2f}" for clients in attack.cohorts),
            f"{attack.limit(multiplier):.2f}",
        )
        for multiplier in attack.noise
    ]
    return WordTable(
        f"What noise buys, with {PAIRS[CRAFTED]}",
        ("noise multiplier", *(f"{clients} clients: ε at least" for clients in attack.cohorts), "ε at most (proven)"),
        rows,
        f"Proven for replacing a client's update by any other at δ = {attack.delta:g}; for replacing it by zeros, as "
        "training accounts for it, half the noise does the same.",
    )
