"""The report on model inversion: how many people are recognised from what each party sees."""

from collections.abc import Sequence

from coterie.attacks.faces.measure import CCESA, GLOBAL, GUESS, PLAIN, SA, Faces
from coterie.attacks.reconstructions import Readings, Trial, excess, read, readings_table
from coterie.reports.findings import CardLine, Effect, Findings
from coterie.reports.words import Level, count


def report(attack: Faces, trials: Sequence[Trial]) -> Findings:
    """Report on all trials."""
    found = read(trials)
    people = len(trials[0].originals)
    masked_tells = any(_beats(found[row], found[GUESS]) for row in (SA, CCESA))
    model_tells = _beats(found[GLOBAL], found[GUESS])
    return Findings(
        level=Level.DANGER if masked_tells or model_tells else Level.CAUTION,
        headlines=[_headline(found, people, model_tells=model_tells)],
        about=(
            f"{attack.data}: {people} people, each a client with pictures of one person; softmax regression, "
            f"{count(attack.rounds, 'round')} of {count(attack.epochs, 'epoch')}, learning rate "
            f"{attack.learning_rate:g}; {count(attack.trials, 'trial')}. Masked vectors are from real sessions: SA on "
            f"the complete graph, CCESA on a random one with p = {attack.connection:g}; a majority of its share "
            "holders can reconstruct a secret."
        ),
        numbers={"chance": 1 / people, "rows": {row: readings.record() for row, readings in found.items()}},
        tables=[
            readings_table(
                found,
                "Mean ± standard deviation over trials; likeness to the person's first picture. Recognised: the "
                "nearest of all pictures is one of that person.",
            )
        ],
        card=_card(found),
        pictures=[trials[0].strip("People, and what each party reconstructs of them", "The first ten people.")],
        remarks=[
            "A masked vector is uniformly random by construction: that the attack fails on it shows only that masking "
            "works, not that faces are safe.",
            "Every protocol reveals the model, which is the purpose of training, and a softmax regression contains a "
            "picture of each class. Secure aggregation hides who contributed what. It does not hide what a model has "
            "learned about a class that is one person; only noise in training bounds that.",
        ],
    )


def _beats(found: Readings, guess: Readings) -> bool:
    """Return whether recognition is better than guessing: significantly, or in a single trial 3 times as often."""
    if len(found.values) < 2:
        return found.mean("recognised") >= 3 * guess.mean("recognised")
    return excess(found, guess, "recognised")[0] > 0


def _share(readings: Readings) -> str:
    return f"{readings.mean('recognised'):.0%}"


def _headline(found: dict[str, Readings], people: int, *, model_tells: bool) -> str:
    masked = f"{_share(found[SA])} and {_share(found[CCESA])} from what an eavesdropper sees of SA and CCESA"
    if model_tells:
        turn = f"but {_share(found[GLOBAL])} from the model itself, which every protocol reveals"
    else:
        turn = f"and {_share(found[GLOBAL])} from the model itself"
    plain = f"{_share(found[PLAIN])} of {people} people are recognised from the model that a client sends unmasked"
    return f"{plain}, {masked} (chance: {1 / people:.0%}), {turn}"


def _card(found: dict[str, Readings]) -> list[CardLine]:
    guess = found[GUESS]

    def line(against: str, row: str, hidden: str, shown: str, *, proven: bool = False) -> CardLine:
        works = _beats(found[row], guess)
        spared = Effect.ELIMINATED if proven else Effect.REDUCED
        why = f"{_share(found[row])} recognised; {shown if works else hidden}"
        return CardLine("model inversion", against, Effect.NOT_ELIMINATED if works else spared, why)

    masked, wrong = "a masked vector is uniformly random, whatever it hides", "this is a bug in Coterie"
    little = "this model has learned too little to invert"
    return [
        line("plain averaging, an eavesdropper", PLAIN, little, "the model was just trained on that person"),
        line("secure aggregation (SA), an eavesdropper", SA, masked, wrong, proven=True),
        line("secure aggregation (CCESA), an eavesdropper", CCESA, masked, wrong, proven=True),
        line("any protocol, anyone who receives the model", GLOBAL, little, "a class is a picture of one person"),
    ]
