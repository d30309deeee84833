"""The report on the demonstration: a client's pictures, as the server draws them after many secure rounds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coterie.attacks.demo.measure import CLIENTS, COHORT, SIZES, Act, Story
from coterie.attacks.inversion.target import MEAN
from coterie.attacks.reconstructions import Reading
from coterie.reports.charts import Figure, draw_line, make_layout
from coterie.reports.findings import CardLine, Effect, Findings, Plot, Strip, Table
from coterie.reports.intervals import spread, spread_cell
from coterie.reports.words import Level, count

_MANY = 0.5  # of the digits recognised: the attack works


def report(story: Story, clients: Sequence[Sequence[Act]]) -> Findings:
    """Report on all clients that were attacked."""
    acts = list(zip(*clients, strict=True))
    recognised = {group[0].privacy: float(np.mean([act.reading.recognised for act in group])) for group in acts}
    guessed = float(np.mean([group[0].drawn.reading(MEAN).recognised for group in clients]))
    works = recognised[acts[0][0].privacy] >= _MANY
    lines = [_line(group, recognised[group[0].privacy], guessed, works=works) for group in acts]
    circles = [line.outcome for line in lines[1:]]
    level = Level.DANGER if Effect.NOT_ELIMINATED in circles else Level.CAUTION
    return Findings(
        level=level if works else Level.NOTHING,
        headlines=[_headline(story, recognised, guessed)],
        about=(
            f"{CLIENTS} clients have written the digits from 1 to 9 once each. They train a softmax regression, "
            f"{COHORT} of them in every round, in steps so small that their updates hardly change. Each round is "
            f"secure: the server is shown one sum. After {story.rounds} rounds it solves for the update of one client "
            f"and inverts that into pictures. Repeated for {count(story.trials, 'client')}; the pictures are those of "
            "the first."
        ),
        numbers={
            "recognised": {str(privacy): share for privacy, share in recognised.items()},
            "guessed": guessed,
            "acts": [_record(group) for group in acts],
        },
        tables=[_table(acts, clients)],
        card=lines,
        plots=[Plot("The client's update, as the server knows it", _figure(clients[0]), _FIGURE)],
        pictures=[_strip(clients[0])],
        remarks=[
            "The sum of a circle has no more numbers than the update of one client, and T times as many pixels behind "
            "it; and nothing in it says whose a digit is. Circles are no defence against inversion as such: a wider "
            "model gives the pictures of whole circles away (coterie attack inversion --model mlp), a crafted one "
            "those of any sum (coterie attack imprint).",
            "Sums are added up in the clear, since the server sees nothing else of a round; in every row the first "
            "round was also played as a real session of secure aggregation, which opened the same sum.",
            "The setting was chosen so that there is something to see: digits of one label blend in a circle's sum, "
            "because every client has each once, and updates hardly change. With ordinary steps they do, and "
            "subtraction takes many more rounds: coterie attack differencing --steps ordinary.",
        ],
    )


_FIGURE = (
    "Error of the update that least squares finds, 0 being the update itself and 1 no better than zero. At random, "
    "every client is exposed as soon as there are as many rounds as clients. A circle is never separated."
)


def _headline(story: Story, recognised: Mapping[int, float], guessed: float) -> str:
    within = " and ".join(f"{recognised[size]:.0%} from circles of {size}" for size in SIZES)
    return (
        f"Every one of {story.rounds} rounds was secure. Together they give away {recognised[1]:.0%} of a client's "
        f"digits if cohorts are drawn at random, {within}; guessing gets {guessed:.0%}"
    )


def _line(group: Sequence[Act], recognised: float, guessed: float, *, works: bool) -> CardLine:
    act = group[0]
    spared = Effect.REDUCED if works else Effect.NOT_SHOWN
    outcome = Effect.NOT_ELIMINATED if recognised >= _MANY else spared
    attack, found = "differencing, then inversion", f"{recognised:.0%} of the digits recognised"
    if act.privacy == 1:
        return CardLine(attack, "secure aggregation, cohorts at random", outcome, f"{found}: T is 1 over many rounds")
    why = f"{found} ({guessed:.0%} by guessing), but not whose they are: T = {act.privacy} over any rounds"
    return CardLine(attack, f"multi-round cohorts, T = {act.privacy}", outcome, why)


def _record(group: Sequence[Act]) -> dict[str, Any]:
    return {
        "cohorts": group[0].who,
        "update_error": [float(act.errors[-1]) for act in group],
        "psnr": [act.reading.psnr for act in group],
        "ssim": [act.reading.ssim for act in group],
        "recognised": [act.reading.recognised for act in group],
    }


def _table(acts: Sequence[Sequence[Act]], clients: Sequence[Sequence[Act]]) -> Table:
    rows = []
    for group in acts:
        readings = [act.reading for act in group]
        error = f"{np.mean([act.errors[-1] for act in group]):.2g}"
        rows.append((group[0].who, error, *_shown(readings)))
    rows.append(
        ("no update: mean picture of the label", "", *_shown([each[0].drawn.reading(MEAN) for each in clients]))
    )
    return Table(
        "What the server has in the end",
        ("cohorts", "error", "PSNR, dB", "±", "SSIM", "recognised", "±"),
        rows,
        "Error: of the update, as least squares finds it. Recognised: of all digits, none is nearer than the original. "
        "±: the sample deviation over the trials, each of another client.",
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


def _strip(acts: Sequence[Act]) -> Strip:
    first = acts[0].drawn
    rows = [("the client's digits", first.originals), *((act.who, act.drawn.drawn[act.row]) for act in acts)]
    rows.append(("guess by label", first.drawn[MEAN]))
    return Strip(
        "What the client wrote, and what the server drew",
        rows,
        "The same attack and the same effort in every row. Digits from circles are shown below the originals that they "
        "fit best, which the server could not do.",
    )


def _figure(acts: Sequence[Act]) -> Figure:
    colours = {1: "@danger", 2: "@caution", 4: "@safe"}
    traces = [
        draw_line(
            act.who,
            range(1, len(act.errors) + 1),
            np.minimum(act.errors, 1.5).round(4).tolist(),
            color=colours[act.privacy],
            width=3,
        )
        for act in acts
    ]
    layout = make_layout("secure rounds watched", "error", yaxis={"range": [0, 1.55]})
    last = ", ".join(f"{act.who}: {act.errors[-1]:.2g}" for act in acts)
    return Figure(traces, layout, 320, f"The error of the client's update over rounds; after the last, {last}.")
