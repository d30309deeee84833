"""The report on the demonstration: the client's pictures that the server reconstructs after many secure rounds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coterie.attacks.demo.measure import CLIENTS, COHORT, SIZES, AttackDemo, SelectionOutcome
from coterie.attacks.inversion.measure import MEAN
from coterie.attacks.reconstructions import Reading
from coterie.reports.charts import Figure, draw_line, make_layout
from coterie.reports.findings import CardLine, Effect, Findings, Plot, Strip, Table
from coterie.reports.intervals import spread, spread_cell
from coterie.reports.words import Level, count

_MANY = 0.5  # share of digits recognised from which on the attack counts as working


def report(attack: AttackDemo, clients: Sequence[Sequence[SelectionOutcome]]) -> Findings:
    """Report on all clients that were attacked."""
    outcomes = list(zip(*clients, strict=True))
    recognised = {
        group[0].privacy: float(np.mean([outcome.reading.recognised for outcome in group])) for group in outcomes
    }
    guessed = float(np.mean([group[0].drawn.reading(MEAN).recognised for group in clients]))
    works = recognised[outcomes[0][0].privacy] >= _MANY
    lines = [_line(group, recognised[group[0].privacy], guessed, works=works) for group in outcomes]
    circles = [line.outcome for line in lines[1:]]
    level = Level.DANGER if Effect.NOT_ELIMINATED in circles else Level.CAUTION
    return Findings(
        level=level if works else Level.NOTHING,
        headlines=[_headline(attack, recognised, guessed)],
        about=(
            f"{CLIENTS} clients have written the digits from 1 to 9 once each. They train a softmax regression, "
            f"{COHORT} of them in every round, in steps so small that their updates hardly change. Each round is "
            f"secure: the server sees one sum. After {attack.rounds} rounds it solves for the update of one client "
            f"and inverts that into pictures. Repeated for {count(attack.trials, 'client')}; the pictures are those "
            "of the first."
        ),
        numbers={
            "recognised": {str(privacy): share for privacy, share in recognised.items()},
            "guessed": guessed,
            "acts": [_record(group) for group in outcomes],
        },
        tables=[_table(outcomes, clients)],
        card=lines,
        plots=[Plot("The client's update, as the server knows it", _figure(clients[0]), _FIGURE)],
        pictures=[_strip(clients[0])],
        remarks=[
            "The sum of a circle has as many numbers as the update of one client, but depends on T times as many "
            "pixels, and it does not say which client wrote a digit. Circles are no defence against inversion itself: "
            "a wider model reveals the pictures of whole circles (the attack inversion with the model mlp), and a "
            "crafted model reveals those of any sum (the attack imprint).",
            "Sums are computed in the clear, because the server sees nothing else of a round. In every row, the first "
            "round was also played as a real session of secure aggregation, which revealed the same sum.",
            "The setting was chosen to make the effect visible: every client has each digit once, so digits of one "
            "label blend in a circle's sum, and updates hardly change. With ordinary steps updates change, and "
            "differencing takes many more rounds (the attack differencing with ordinary steps).",
        ],
    )


_FIGURE = (
    "Error of the update that least squares recovers: 0 is exact, 1 is no better than guessing zero. With random "
    "cohorts, every client is exposed once there are as many rounds as clients. A circle is never separated."
)


def _headline(attack: AttackDemo, recognised: Mapping[int, float], guessed: float) -> str:
    within = " and ".join(f"{recognised[size]:.0%} from circles of {size}" for size in SIZES)
    return (
        f"Each of {attack.rounds} rounds was secure. Together they reveal {recognised[1]:.0%} of a client's digits "
        f"with random cohorts, {within}; guessing gets {guessed:.0%}"
    )


def _line(group: Sequence[SelectionOutcome], recognised: float, guessed: float, *, works: bool) -> CardLine:
    privacy = group[0].privacy
    weaker = Effect.REDUCED if works else Effect.NOT_SHOWN
    effect = Effect.NOT_ELIMINATED if recognised >= _MANY else weaker
    attack, found = "differencing, then inversion", f"{recognised:.0%} of the digits recognised"
    if privacy == 1:
        return CardLine(attack, "secure aggregation, random cohorts", effect, f"{found}: T is 1 over many rounds")
    why = f"{found} ({guessed:.0%} by guessing), but not whose they are: T = {privacy} over any number of rounds"
    return CardLine(attack, f"multi-round cohorts, T = {privacy}", effect, why)


def _record(group: Sequence[SelectionOutcome]) -> dict[str, Any]:
    return {
        "cohorts": group[0].who,
        "update_error": [float(outcome.errors[-1]) for outcome in group],
        "psnr": [outcome.reading.psnr for outcome in group],
        "ssim": [outcome.reading.ssim for outcome in group],
        "recognised": [outcome.reading.recognised for outcome in group],
    }


def _table(outcomes: Sequence[Sequence[SelectionOutcome]], clients: Sequence[Sequence[SelectionOutcome]]) -> Table:
    rows = []
    for group in outcomes:
        readings = [outcome.reading for outcome in group]
        error = f"{np.mean([outcome.errors[-1] for outcome in group]):.2g}"
        rows.append((group[0].who, error, *_shown(readings)))
    rows.append(
        ("no update: mean picture of the label", "", *_shown([each[0].drawn.reading(MEAN) for each in clients]))
    )
    return Table(
        "What the server obtains",
        ("cohorts", "error", "PSNR, dB", "±", "SSIM", "recognised", "±"),
        rows,
        "Error: of the update that least squares recovers. Recognised: the original is the nearest of all digits. ±: "
        "the sample standard deviation over the trials, each with another client.",
    )


def _shown(readings: Sequence[Reading]) -> tuple[str, str, str, str, str]:
    psnr, ssim, recognised = (
        np.array([getattr(one, name) for one in readings]) for name in ("psnr", "ssim", "recognised")
    )
    return (
        f"{psnr.mean():.1f}",
        spread_cell(spread(psnr), ".1f"),
        f"{ssim.mean():.2f}",
        f"{recognised.mean():.0%}",
        spread_cell(spread(recognised), ".0%"),
    )


def _strip(outcomes: Sequence[SelectionOutcome]) -> Strip:
    first = outcomes[0].drawn
    rows = [
        ("the client's digits", first.originals),
        *((outcome.who, outcome.drawn.drawn[outcome.row]) for outcome in outcomes),
    ]
    rows.append(("guess by label", first.drawn[MEAN]))
    return Strip(
        "The client's digits, and what the server reconstructs",
        rows,
        "Every row has the same attack and the same effort. Digits from circles are shown below the "
        "originals that they fit best; the server does not have these.",
    )


def _figure(outcomes: Sequence[SelectionOutcome]) -> Figure:
    colours = {1: "@danger", 2: "@caution", 4: "@safe"}
    traces = [
        draw_line(
            outcome.who,
            range(1, len(outcome.errors) + 1),
            np.minimum(outcome.errors, 1.5).round(4).tolist(),
            color=colours[outcome.privacy],
            width=3,
        )
        for outcome in outcomes
    ]
    layout = make_layout("secure rounds observed", "error", yaxis={"range": [0, 1.55]})
    last = ", ".join(f"{outcome.who}: {outcome.errors[-1]:.2g}" for outcome in outcomes)
    return Figure(traces, layout, 320, f"The error of the client's update over rounds; after the last, {last}.")
