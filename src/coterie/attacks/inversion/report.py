"""The report on gradient inversion: how many pictures are recognised, from a client's update and from a circle's."""

import math
from collections.abc import Mapping, Sequence

from coterie.attacks.inversion.measure import ALONE, MEAN, PICTURE, TOGETHER, Inversion, Origin
from coterie.attacks.reconstructions import Readings, Trial, excess, read, readings_table
from coterie.reports.findings import CardLine, Effect, Findings
from coterie.reports.words import Level, count

_MANY = 0.5  # share of pictures recognised from which on the attack counts as working
_NOTE = (
    "Mean ± standard deviation over clients. Recognised: the original is the nearest of up to 2,000 pictures. Alone: "
    "the attacker takes the circle's mean for the client's own update. Together: it takes the mean for the circle's, "
    "and looks for all its pictures."
)
_CAPTION = (
    "Every inversion has the same budget. Pictures of a circle are shown below the originals that they fit best; an "
    "attacker does not have these."
)


def report(attack: Inversion, trials: Sequence[Trial]) -> Findings:
    """Report on all trials."""
    found, numbers = read(trials), attack.numbers
    guess = max((found[MEAN], found[PICTURE]), key=lambda readings: readings.mean("psnr"))
    own = found[Origin(1, ALONE).label]
    circles = {privacy: _stronger(found, privacy) for privacy in attack.privacy}
    works = _beats(own, guess) or own.mean("recognised") >= _MANY
    lines = [_line(privacy, best, guess, works=works) for privacy, best in {1: own, **circles}.items()]
    pixels = trials[0].originals.size
    return Findings(
        level=_level(works, [line.outcome for line in lines[1:]]),
        headlines=[_headline(own, circles, guess, works=works)],
        about=_setting(attack, numbers),
        numbers={
            "numbers_in_an_update": numbers,
            "unknown_pixels": {str(privacy): privacy * pixels for privacy in (1, *attack.privacy)},
            "rows": {row: readings.record() for row, readings in found.items()},
        },
        tables=[readings_table(found, _NOTE)],
        card=lines,
        pictures=[trials[0].strip("The first client's pictures, and their reconstructions", _CAPTION)],
        remarks=_remarks(attack, numbers, pixels),
    )


def _stronger(found: Mapping[str, Readings], privacy: int) -> Readings:
    """Return the better of the two ways to attack a circle."""
    ways = (found[Origin(privacy, way).label] for way in (ALONE, TOGETHER))
    return max(ways, key=lambda readings: readings.mean("psnr"))


def _beats(found: Readings, guess: Readings) -> bool:
    """Return whether pictures are significantly nearer, or more often recognised, than guesses."""
    return any(excess(found, guess, measure)[0] > 0 for measure in ("psnr", "recognised"))


def _level(works: bool, outcomes: Sequence[Effect]) -> Level:
    if not works:
        return Level.NOTHING
    return Level.DANGER if Effect.NOT_ELIMINATED in outcomes else Level.CAUTION


def _headline(own: Readings, circles: Mapping[int, Readings], guess: Readings, *, works: bool) -> str:
    def share(readings: Readings) -> str:
        return f"{readings.mean('recognised'):.0%}"

    if not works:
        return (
            f"The attack fails even on a client's own update, from which {share(own)} of the pictures are recognised "
            f"({share(guess)} by guessing): it says nothing about circles"
        )
    within = ", ".join(f"{share(best)} from a circle of {privacy}" for privacy, best in circles.items())
    return (
        f"{share(own)} of a client's pictures are recognised when its own update is inverted, {within}; guessing gets "
        f"{share(guess)}"
    )


def _line(privacy: int, readings: Readings, guess: Readings, *, works: bool) -> CardLine:
    """Return the card line of one configuration; nothing is shown if the attack fails on a client's own update."""
    low, high = excess(readings, guess, "psnr")
    shown = f"{readings.mean('recognised'):.0%} recognised, {readings.mean('psnr') - guess.mean('psnr'):+.1f} dB"
    shown += f" ({low:+.1f} to {high:+.1f}) compared with guessing" if math.isfinite(low) else " compared with guessing"
    attack = "gradient inversion"
    many = readings.mean("recognised") >= _MANY
    if privacy == 1:
        outcome = Effect.NOT_ELIMINATED if works else Effect.NOT_SHOWN
        why = f"{shown}; over rounds the update itself is isolated"
        return CardLine(attack, "secure aggregation, cohorts at random (T = 1)", outcome, why)
    against = f"multi-round cohorts, T = {privacy}"
    if many:
        why = f"{shown}; {privacy} clients together are a larger batch, and this model reveals it"
        return CardLine(attack, against, Effect.NOT_ELIMINATED, why)
    if _beats(readings, guess):
        return CardLine(attack, against, Effect.REDUCED, f"{shown}; but not which of {privacy} clients they belong to")
    why = f"{shown}: not shown to be better than guessing here, which proves nothing for other models"
    return CardLine(attack, against, Effect.REDUCED if works else Effect.NOT_SHOWN, why)


def _setting(attack: Inversion, numbers: int) -> str:
    stage = f"after {count(attack.trained, 'round')} of training" if attack.trained else "before training"
    return (
        f"{attack.data}, {attack.model} ({numbers:,} numbers in an update) {stage}; {attack.clients} clients with "
        f"{count(attack.examples, 'picture')} each, all in one step of descent. {count(attack.trials, 'client')} "
        f"attacked, each with other data and another model; {attack.steps:,} steps for every inversion. A circle's "
        "mean comes from a real session of secure aggregation."
    )


def _remarks(attack: Inversion, numbers: int, pixels: int) -> list[str]:
    sizes = ", ".join(f"{privacy * pixels:,} with T = {privacy}" for privacy in (1, *attack.privacy))
    within = [privacy for privacy in attack.privacy if privacy * pixels <= numbers]
    remarks = [
        f"An update always has {numbers:,} numbers; the unknown pixels are {sizes}. "
        + (
            f"With T = {', '.join(map(str, within))} there are no more unknowns than numbers, so the update may "
            "determine all pictures of the circle."
            if within
            else "If there are more pixels than numbers, the update does not determine all of them."
        ),
        "Circles hide which of T clients a picture belongs to. They hide its content only as far as a larger batch "
        "does. Wide models such as mlp reveal large batches, and stronger attacks than this one are known. More "
        "pictures and more steps of each client make the attack harder; only noise bounds it.",
    ]
    if not attack.trained:
        remarks.append("An untrained model reveals most; with the setting trained, a later round is attacked.")
    return remarks
