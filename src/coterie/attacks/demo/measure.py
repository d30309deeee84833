"""The story for a talk: secure rounds whose sums are subtracted from each other until a client's pictures appear.

Three populations train the same model on the same digits, and every single round is securely aggregated. They differ in
who takes part: clients at random, circles of 2, circles of 4. The server solves for each client's update by least
squares (:mod:`coterie.attacks.differencing`) and inverts what it finds into pictures, in the way that gives it most
(:mod:`coterie.attacks.inversion`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from coterie.attacks.demo.settings import DemoSettings
from coterie.attacks.differencing.algebra import reconstruct, relative_errors
from coterie.attacks.federation import Federation, Observations, Side, make_sides
from coterie.attacks.finding import Adversary, AttackFinding, CardLine, Effect, OnProgress, Plot, Strip, WordTable
from coterie.attacks.inversion.descent import Budget
from coterie.attacks.inversion.target import ALONE, MEAN, TARGET, TOGETHER, Origin, Scene
from coterie.attacks.reconstructions import Reading, Trial
from coterie.attacks.session import session_error
from coterie.cohorts.circles import Reals
from coterie.reports.html import Figure
from coterie.reports.intervals import spread, spread_cell
from coterie.reports.words import Level, count
from coterie.training.local import LocalSGD
from coterie.training.streams import stream

_SIZES = (2, 4)
_CLIENTS, _COHORT = 16, 8
_WRITTEN = range(1, 10)  # the digits that every client writes, each once
_RATE = 0.001  # small steps: the attack needs updates that hardly change
_MANY = 0.5  # of the digits recognised: the attack works


@dataclass(frozen=True, eq=False)
class Act:
    """What the server drew under one way to choose cohorts."""

    privacy: int
    errors: Reals
    """Of the client's update, as solved for after each round."""
    reading: Reading
    drawn: Trial
    row: str
    """Of the two ways to invert, the better one."""

    @property
    def who(self) -> str:
        """Who takes part."""
        return "random cohorts" if self.privacy == 1 else f"circles of {self.privacy}"


@dataclass(frozen=True)
class Story(DemoSettings):
    """Random selection, circles of 2 and circles of 4, attacked alike."""

    name: ClassVar[str] = "demo"
    title: ClassVar[str] = "Secure rounds, and what many of them give away"

    @property
    def threat(self) -> Adversary:
        """A curious server with a memory."""
        return Adversary(
            who="the server: honest, curious, and with a memory",
            sees="one sum in every round, securely aggregated; never the update of a client",
            knows="who took part in which round, the model, and the labels of the digits",
            may="compute; it changes nothing and breaks no rule",
        )

    def play(self, watch: OnProgress) -> AttackFinding:
        """Tell the story for several clients."""
        told: list[list[Act]] = []
        for number in range(self.trials):
            seed = int(stream(self.seed, "demo", number).integers(2**62))
            scene = Scene.set(writers(seed), 0)
            sides = [
                *make_sides(("random",), (2,), _CLIENTS, _COHORT, seed, naive=False),
                *make_sides(("multi-round",), _SIZES, _CLIENTS, _COHORT, seed, naive=False),
            ]
            acts = []
            for done, (privacy, side) in enumerate(zip((1, *_SIZES), sides, strict=True)):
                share = (number + done / len(sides)) / self.trials
                watch(f"client {number + 1} of {self.trials}: {self.rounds} secure rounds, then subtraction", share)
                acts.append(self.act(scene, privacy, side))
            told.append(acts)
        return make_finding(self, told)

    def act(self, scene: Scene, privacy: int, side: Side) -> Act:
        """Watch rounds, solve for the client's update, and invert it."""
        work = LocalSGD(_RATE, batch_size=len(_WRITTEN))
        federation = scene.federation
        played = list(federation.play(federation.fedavg(work, scene.state), range(1, self.rounds + 1), side))
        session_error(list(played[0].updates), played[0].number)  # raises if the session opens anything else
        seen = Observations.of(played, _CLIENTS)
        truth = seen.truth[[TARGET]]
        solved = [
            reconstruct(seen.participation[:count], seen.means[:count])[TARGET] for count in range(1, len(played) + 1)
        ]
        rows = [Origin(privacy, way) for way in ((ALONE,) if privacy == 1 else (ALONE, TOGETHER))]
        drawn = scene.trial({row: scene.recover(row, solved[-1], Budget(self.steps)) for row in rows})
        best = max(rows, key=lambda row: drawn.reading(row.label).psnr)
        errors = np.array([relative_errors(truth, one[None])[0] for one in solved])
        return Act(privacy, errors, drawn.reading(best.label), drawn, best.label)


def writers(seed: int) -> Federation:
    """Return clients who have written the digits from 1 to 9 once each, in their own hand."""
    federation = Federation.deal("digits", "softmax-regression", _CLIENTS, seed)
    labels, rng = np.asarray(federation.dataset.train_y), stream(seed, "writing")
    dealt = [rng.permutation(np.flatnonzero(labels == digit))[:_CLIENTS] for digit in _WRITTEN]
    return replace(federation, parts=list(np.stack(dealt, axis=1)))


def make_finding(story: Story, told: Sequence[Sequence[Act]]) -> AttackFinding:
    """Put the story together."""
    acts = list(zip(*told, strict=True))
    recognised = {group[0].privacy: float(np.mean([act.reading.recognised for act in group])) for group in acts}
    guessed = float(np.mean([group[0].drawn.reading(MEAN).recognised for group in told]))
    works = recognised[acts[0][0].privacy] >= _MANY
    lines = [_line(group, recognised[group[0].privacy], guessed, works=works) for group in acts]
    circles = [line.outcome for line in lines[1:]]
    level = Level.DANGER if Effect.NOT_ELIMINATED in circles else Level.CAUTION
    return AttackFinding(
        level=level if works else Level.NOTHING,
        headline=_headline(story, recognised, guessed),
        setting=(
            f"{_CLIENTS} clients have written the digits from 1 to 9 once each. They train a softmax regression, "
            f"{_COHORT} of them in every round, in steps so small that their updates hardly change. Each round is "
            f"secure: the server is shown one sum. After {story.rounds} rounds it solves for the update of one client "
            f"and inverts that into pictures. Told for {count(story.trials, 'client')}; the pictures are those of the "
            "first."
        ),
        measures={
            "recognised": {str(privacy): share for privacy, share in recognised.items()},
            "guessed": guessed,
            "acts": [_record(group) for group in acts],
        },
        tables=[_table(acts, told)],
        card=lines,
        plots=[Plot("The client's update, as the server knows it", _figure(told[0]), _FIGURE)],
        strips=[_strip(told[0])],
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
    "everybody comes to light as soon as there are as many rounds as clients. A circle stays a circle, for ever."
)


def _headline(story: Story, recognised: Mapping[int, float], guessed: float) -> str:
    within = " and ".join(f"{recognised[size]:.0%} from circles of {size}" for size in _SIZES)
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
    why = f"{found} ({guessed:.0%} by guessing), and whose they are is not told: T = {act.privacy} over any rounds"
    return CardLine(attack, f"multi-round cohorts, T = {act.privacy}", outcome, why)


def _record(group: Sequence[Act]) -> dict[str, Any]:
    return {
        "cohorts": group[0].who,
        "update_error": [float(act.errors[-1]) for act in group],
        "psnr": [act.reading.psnr for act in group],
        "ssim": [act.reading.ssim for act in group],
        "recognised": [act.reading.recognised for act in group],
    }


def _table(acts: Sequence[Sequence[Act]], told: Sequence[Sequence[Act]]) -> WordTable:
    rows = []
    for group in acts:
        readings = [act.reading for act in group]
        error = f"{np.mean([act.errors[-1] for act in group]):.2g}"
        rows.append((group[0].who, error, *_shown(readings)))
    rows.append(("no update: mean picture of the label", "", *_shown([each[0].drawn.reading(MEAN) for each in told])))
    return WordTable(
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
        "The same attack and the same effort in every row. Digits from circles are laid beside the originals that they "
        "fit best, which the server could not do.",
    )


def _figure(acts: Sequence[Act]) -> Figure:
    colours = {1: "@danger", 2: "@caution", 4: "@safe"}
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": act.who,
            "x": list(range(1, len(act.errors) + 1)),
            "y": np.minimum(act.errors, 1.5).round(4).tolist(),
            "line": {"color": colours[act.privacy], "width": 3},
        }
        for act in acts
    ]
    layout = {
        "xaxis": {"title": {"text": "secure rounds watched"}},
        "yaxis": {"title": {"text": "error"}, "range": [0, 1.55]},
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    }
    told = ", ".join(f"{act.who}: {act.errors[-1]:.2g}" for act in acts)
    return Figure(traces, layout, 320, f"The error of the client's update over rounds; after the last, {told}.")
