"""The report on crafted models: how many examples are recovered from a sum, and what each defence changes."""

from collections.abc import Mapping, Sequence

import numpy as np

from coterie.attacks.imprint.measure import CraftedRound, Imprint, RecoveredExamples
from coterie.reports.findings import CardLine, Effect, Findings, Strip, Table
from coterie.reports.intervals import mean_and_spread
from coterie.reports.words import Level, count

_SHOWN = 8
_FEW = 0.01  # share of recovered examples at which noise counts as effective


def report(attack: Imprint, rounds: Sequence[CraftedRound]) -> Findings:
    """Report on all rounds."""
    cases = sorted({(one.cohort, one.bins) for one in rounds})
    by_case = {case: [one for one in rounds if (one.cohort, one.bins) == case] for case in cases}
    worst = max(by_case.values(), key=lambda some: _share([one.bare for one in some]))
    largest = by_case[cases[-1]]
    works = _share([one.bare for one in worst]) > max(_FEW, _share([one.guess for one in worst]))
    return Findings(
        level=Level.DANGER if works else Level.NOTHING,
        headlines=[_headline(attack, largest, works=works)],
        about=(
            f"{attack.data}; {count(attack.examples, 'example')} a client, one step of descent; cohorts of whole "
            f"circles of {attack.privacy}, summed by real sessions of secure aggregation; "
            f"{count(attack.trials, 'trial')} a row. The agreed model is a softmax regression; the crafted one has a "
            "layer in front of it."
        ),
        numbers={
            "cases": [_case(case, some) for case, some in by_case.items()],
            "noise": {f"{z:g}": _share([one.noisy[z] for one in largest]) for z in attack.noise},
        },
        tables=[_recovered(by_case), _defended(attack, largest)],
        card=_card(attack, largest),
        pictures=[_strip(attack, largest[0])],
        remarks=[
            "Circles and secure aggregation are no defence here, and cannot be: a crafted model separates the "
            "examples within the sum. Which client an example belongs to stays hidden among the cohort, unless the "
            "example shows it.",
            "A pinned architecture keeps an inserted layer out. If the agreed model begins with a wide linear layer, "
            "the server can craft its numbers and keep its shape; then only noise bounds the attack. Attacks through "
            "convolutions are known too. Several steps of descent weaken this attack, but not all of its kind.",
            "Noise was added to the sum in the clear. Its standard deviation is z times the norm C that updates are "
            "clipped to. A layer in which each example moves only one unit would withstand about sqrt(bins / 2) times "
            "as much; only a z for which an epsilon is stated is a promise.",
        ],
    )


def _share(caught: Sequence[RecoveredExamples]) -> float:
    return float(np.mean([one.share for one in caught]))


def _headline(attack: Imprint, rounds: Sequence[CraftedRound], *, works: bool) -> str:
    one = rounds[0]
    found = f"{_share([each.bare for each in rounds]):.0%} of {len(one.bare.originals):,} examples"
    if not works:
        return f"The attack fails: {found} are recovered from the sum over {one.cohort} clients"
    quiet = [z for z in attack.noise if all(_silent(each.noisy[z], each.guess) for each in rounds)]
    noise = "none of the noise levels tried stops it"
    if quiet:
        noise = f"with noise of z = {min(quiet):g} guessing does better"
    return (
        f"Circles do not help: {found} are recovered exactly from the sum over {one.cohort} clients in circles of "
        f"{attack.privacy}; an architecture that clients pin keeps such a layer out, and {noise}"
    )


def _silent(caught: RecoveredExamples, guess: RecoveredExamples) -> bool:
    """Return whether hardly anything is recovered exactly, and nothing better than by guessing."""
    return caught.share <= _FEW and caught.psnr <= guess.psnr


def _case(case: tuple[int, int], rounds: Sequence[CraftedRound]) -> dict[str, float]:
    cohort, bins = case
    return {
        "cohort": cohort,
        "bins": bins,
        "examples": len(rounds[0].bare.originals),
        "recovered": float(np.mean([one.bare.exact for one in rounds])),
        "expected": rounds[0].expected,
        "psnr": float(np.mean([one.bare.psnr for one in rounds])),
        "guessed": float(np.mean([one.guess.exact for one in rounds])),
        "guessed_psnr": float(np.mean([one.guess.psnr for one in rounds])),
    }


def _recovered(by_case: Mapping[tuple[int, int], Sequence[CraftedRound]]) -> Table:
    cases = [(_case(case, rounds), rounds) for case, rounds in by_case.items()]
    return Table.of(
        "Examples recovered from one sum over whole circles",
        cases,
        [
            ("sum over", lambda row: f"{row[0]['cohort']} clients, {row[0]['bins']} bins"),
            ("examples", lambda row: f"{row[0]['examples']:,}"),
            ("recovered", lambda row: mean_and_spread([one.bare.exact for one in row[1]], ".0f")),
            ("expected", lambda row: f"{row[0]['expected']:.0f}"),
            ("PSNR, dB", lambda row: f"{row[0]['psnr']:.1f}"),
            ("by guessing", lambda row: f"{row[0]['guessed']:.0f}"),
            ("PSNR, dB", lambda row: f"{row[0]['guessed_psnr']:.1f}"),
        ],
        "Recovered: every pixel within 1/32 of its range; for the bundled digits, rounding then gives the exact "
        "picture. Expected: examples alone in their bin, if bins were equally likely. PSNR: of each example and the "
        "nearest that was recovered. Guessing: as many public pictures as there are bins.",
    )


def _defended(attack: Imprint, rounds: Sequence[CraftedRound]) -> Table:
    one = rounds[0]
    nobody = "0%, refused"
    bare = f"{_share([each.bare for each in rounds]):.0%}"

    def after(refused: bool) -> str:
        return nobody if refused else bare

    rows = [
        (f"circles of {attack.privacy}, secure aggregation", bare, _psnr([each.bare for each in rounds])),
        ("a floor with the agreed model's length (most_length)", after(one.refused_for_length), ""),
        ("the agreed architecture pinned", after(one.refused_for_architecture), ""),
        ("the same, where the agreed model has such a layer", after(one.refused_where_wide), ""),
        *(
            (
                f"noise, z = {z:g}",
                f"{_share([each.noisy[z] for each in rounds]):.0%}",
                _psnr([r.noisy[z] for r in rounds]),
            )
            for z in attack.noise
        ),
        ("guessing", f"{_share([each.guess for each in rounds]):.0%}", _psnr([each.guess for each in rounds])),
    ]
    title = f"Defences: {one.cohort} clients, {one.bins} bins"
    return Table(title, ("defence", "recovered", "PSNR, dB"), rows)


def _psnr(caught: Sequence[RecoveredExamples]) -> str:
    return f"{np.mean([one.psnr for one in caught]):.1f}"


def _card(attack: Imprint, rounds: Sequence[CraftedRound]) -> list[CardLine]:
    one = rounds[0]
    bare = _share([each.bare for each in rounds])
    guess = _share([each.guess for each in rounds])
    name, works = "crafted model", bare > max(guess, _FEW)
    lines = [
        CardLine(
            name,
            f"multi-round cohorts, T = {attack.privacy}",
            Effect.NOT_ELIMINATED if works else Effect.NOT_SHOWN,
            f"{bare:.0%} recovered exactly: the crafted model keeps examples apart within the sum",
        ),
        CardLine(
            name,
            "architecture pinned by the client",
            Effect.REDUCED if one.refused_for_architecture else Effect.NOT_ELIMINATED,
            "an inserted layer is refused before training; crafted numbers in an agreed wide layer are not",
        ),
    ]
    for z in attack.noise:
        share = _share([each.noisy[z] for each in rounds])
        outcome = Effect.NOT_SHOWN
        if works:
            outcome = Effect.REDUCED if share < bare / 2 else Effect.NOT_ELIMINATED
        why = f"{share:.0%} recovered exactly, instead of {bare:.0%}"
        if all(_silent(each.noisy[z], each.guess) for each in rounds):
            why += "; guessing comes nearer"
        lines.append(CardLine(name, f"noise, z = {z:g}", outcome, why))
    return lines


def _strip(attack: Imprint, one: CraftedRound) -> Strip:
    rows = [("original", one.bare.originals[:_SHOWN]), ("from the sum", one.bare.nearest[:_SHOWN])]
    rows += [(f"noise, z = {z:g}", one.noisy[z].nearest[:_SHOWN]) for z in attack.noise]
    rows.append(("guess: a public picture", one.guess.nearest[:_SHOWN]))
    return Strip(
        f"Some of {len(one.bare.originals):,} examples, recovered from one sum over {one.cohort} clients",
        rows,
        "Beside each original, the nearest of the recovered pictures. This is the best case for the attacker.",
    )
