"""The report on one sum: the epsilon that the audit shows, and the epsilon that noise guarantees."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TypeAlias

from coterie.attacks.one_sum.bounds import DOUBT, Bound, ceiling
from coterie.attacks.one_sum.measure import CLIENT, CRAFTED, PAIRS, Audits, EpsilonAudit, OneSum
from coterie.reports.charts import Figure, Trace, draw_line, make_layout, reference_line, text
from coterie.reports.findings import CardLine, Effect, Findings, Plot, Table
from coterie.reports.words import Level, count

_COLORS = ("@accent", "@caution", "@danger", "@safe")
_SATURATED = 0.9  # share of the ceiling above which there are too few observations
_FAR = 1000  # deviations; larger distances are an artefact of the ridge, in directions in which no update moves
_REMARKS = (
    "Without noise there is no finite ε: another pair of updates or more observations may show a larger bound than "
    "this one. A bound of 0 means that nothing was shown, not that nothing leaks.",
    "The worst direction is one in which other clients' updates do not differ at all, such as the weights of a pixel "
    "that is never on. Real data would not move an update there either, but a private mechanism must hide any update.",
    "This limits every defence here: circles and masks keep a sum from being taken apart, but do not change what the "
    "sum itself reveals.",
)


@dataclass(frozen=True)
class AuditSummary:
    """The results of one audit over all trials."""

    epsilon: float
    """The median of the lower bounds."""
    least: float
    most: float
    distance: float
    bounds: Sequence[Bound]

    @classmethod
    def of(cls, audits: Sequence[EpsilonAudit]) -> "AuditSummary":
        """Combine the trials."""
        bounds = [one.bound for one in audits]
        epsilons = [one.epsilon for one in bounds]
        return cls(median(epsilons), min(epsilons), max(epsilons), median(one.distance for one in audits), bounds)


PlainAudits: TypeAlias = Mapping[tuple[int, str], AuditSummary]
NoisyAudits: TypeAlias = Mapping[tuple[int, float], AuditSummary]


def report(attack: OneSum, measured: Audits) -> Findings:
    """Report on the audits of all trials."""
    gap = measured.session_gap
    together = [(same[0], AuditSummary.of(same)) for same in zip(*measured.trials, strict=True)]
    plain = {(one.clients, one.pair): shown for one, shown in together if not one.multiplier}
    noisy = {(one.clients, one.multiplier): shown for one, shown in together if one.multiplier}
    most = ceiling(attack.tries - attack.tries // 2, attack.delta)
    exceeded = any(shown.most > attack.limit(multiplier) for (_, multiplier), shown in noisy.items())
    worst = {
        clients: max((plain[clients, pair] for pair in PAIRS), key=lambda shown: shown.epsilon)
        for clients in attack.cohorts
    }
    return Findings(
        level=_level(worst, most, exceeded=exceeded),
        headlines=[_headline(plain, worst, most, exceeded=exceeded)],
        about=_setting(attack, most, gap),
        numbers={
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
        plots=[_draw_pairs(attack, plain, most), _draw_noise(attack, noisy)],
        remarks=_REMARKS,
    )


def _level(worst: Mapping[int, AuditSummary], most: float, *, exceeded: bool) -> Level:
    epsilon = max(shown.epsilon for shown in worst.values())
    if exceeded or epsilon >= _SATURATED * most:
        return Level.DANGER
    return Level.CAUTION if epsilon else Level.NOTHING


def _headline(plain: PlainAudits, worst: Mapping[int, AuditSummary], most: float, *, exceeded: bool) -> str:
    if exceeded:
        return "A lower bound is above the proven ε: the noise is not what the proof assumes."
    if not any(shown.epsilon for shown in worst.values()):
        return "With this few sums nothing is shown, which proves nothing: without noise there is no finite ε."
    real = ", ".join(f"ε ≥ {plain[clients, CLIENT].epsilon:.1f} for {clients} clients" for clients in worst)
    least = min(shown.epsilon for shown in worst.values())
    return (
        f"One sum without noise is not a private mechanism. Which of two real updates is in it: {real}. In the worst "
        f"direction: ε ≥ {least:.1f} for any, where {most:.1f} is the most that this number of sums can show."
    )


def _plain_lines(attack: OneSum, worst: Mapping[int, AuditSummary], most: float) -> list[CardLine]:
    return [
        CardLine(
            attack.title,
            f"a sum of {clients} without noise",
            Effect.NOT_ELIMINATED,
            f"ε ≥ {shown.epsilon:.1f} of the {most:.1f} that could be shown: other clients' updates are not noise of "
            "a known distribution",
        )
        for clients, shown in worst.items()
    ]


def _noise_lines(attack: OneSum, *, exceeded: bool) -> list[CardLine]:
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


def _setting(attack: OneSum, most: float, gap: float) -> str:
    return (
        f"{attack.data}, {attack.model}, {count(attack.examples, 'example')} a client, "
        f"{count(attack.epochs, 'local epoch')}; {count(attack.population, 'client')} to draw from, as many simulated "
        f"by the attacker, all updates clipped to the median norm. {count(attack.tries, 'sum')} under each "
        f"hypothesis, half of them to choose the test; {count(attack.trials, 'trial')}, of which medians are shown. "
        f"Bounds hold with a confidence of {1 - DOUBT:.0%} at δ = {attack.delta:g}, and cannot exceed {most:.2f} with "
        "this number of sums. Sums are computed in the clear; one real session of each size opens the same sum, to "
        f"{gap:.1g} of the norm in every entry (rounding)."
    )


def _plain_table(plain: PlainAudits, most: float) -> Table:
    def calls(shown: AuditSummary) -> str:
        first = shown.bounds[0]
        return f"{first.hits:,} / {first.false_alarms:,} of {first.tries:,}"

    return Table.of(
        "One sum, without noise",
        [(f"{clients} clients, {PAIRS[pair]}", shown) for (clients, pair), shown in plain.items()],
        [
            ("sum", lambda row: row[0]),
            ("distance μ", lambda row: f"{row[1].distance:.2f}" if row[1].distance < _FAR else f"over {_FAR:,}"),
            ("right / wrong (first trial)", lambda row: calls(row[1])),
            ("ε at least", lambda row: f"{row[1].epsilon:.2f} ({row[1].least:.2f} to {row[1].most:.2f})"),
            ("ε at most", lambda _: "none"),
        ],
        "μ is the distance between the two updates in standard deviations of the others' sum, by the normal "
        f"approximation. The most that could be shown is {most:.2f}.",
    )


def _noise_table(attack: OneSum, noisy: NoisyAudits) -> Table:
    rows = [
        (
            f"{multiplier:g}",
            *(f"{noisy[clients, multiplier].epsilon:.2f}" for clients in attack.cohorts),
            f"{attack.limit(multiplier):.2f}",
        )
        for multiplier in attack.noise
    ]
    return Table(
        f"Effect of noise, with {PAIRS[CRAFTED]}",
        ("noise multiplier", *(f"{clients} clients: ε at least" for clients in attack.cohorts), "ε at most (proven)"),
        rows,
        f"Proven for replacing a client's update by any other at δ = {attack.delta:g}; for replacing it by zeros, as "
        "training accounts for it, half the noise does the same.",
    )


def _draw_pairs(attack: OneSum, plain: PlainAudits, most: float) -> Plot:
    """Draw the bounds for each cohort and pair, and the most that could be shown."""
    traces: list[Trace] = []
    for (pair, name), color in zip(PAIRS.items(), _COLORS, strict=False):
        found = [plain[clients, pair] for clients in attack.cohorts]
        whiskers = {
            "array": [one.most - one.epsilon for one in found],
            "arrayminus": [one.epsilon - one.least for one in found],
        }
        traces.append(
            {
                "type": "bar",
                "name": text(name),
                "x": [f"{clients} clients" for clients in attack.cohorts],
                "y": [one.epsilon for one in found],
                "marker": {"color": color},
                "error_y": {"type": "data", "symmetric": False, **whiskers, "color": "@ink", "thickness": 1},
            }
        )
    layout = make_layout(
        "", "ε is at least", yaxis={"range": [0, most * 1.1]}, barmode="group", shapes=[reference_line(most)]
    )
    return Plot(
        "One sum without noise",
        Figure(traces, layout, 400, "Lower bounds on epsilon for one sum without noise"),
        "Median over trials, whiskers from the least to the most. Dashed: the most that this number of sums could "
        "show.",
    )


def _draw_noise(attack: OneSum, noisy: NoisyAudits) -> Plot:
    """Draw what is shown and what is proven, by the noise multiplier."""
    noise = sorted(attack.noise)
    traces = [
        draw_line(
            f"{clients} clients, at least (audited)",
            noise,
            [noisy[clients, multiplier].epsilon for multiplier in noise],
            mode="lines+markers",
            color=color,
        )
        for clients, color in zip(attack.cohorts, _COLORS, strict=False)
    ]
    limits = map(attack.limit, noise)
    traces.append(draw_line("at most (proven)", noise, limits, mode="lines+markers", color="@muted", dash="dash"))
    layout = make_layout(
        "noise multiplier", "ε", xaxis={"type": "log", "tickvals": noise}, yaxis={"rangemode": "tozero"}
    )
    figure = Figure(traces, layout, 380, "Audited and proven epsilon by the noise multiplier")
    return Plot("Effect of noise", figure, "An audited line above the proven one would disprove the proof.")
