"""Rounds by several policies, and what their sums reveal after each of them.

Every round has a cohort, which a policy of :mod:`coterie.cohorts` selects. Clients may leave inside the round. The
clients that are summed give the participation matrix, one row for each round, and everything else follows from it: the
:class:`~coterie.auditing.auditor.Auditor` finds the exposed people and their witnesses, :func:`reduced_form` is the
matrix in reduced row echelon form, and :func:`known_part` is the part of each picture in the server's best guess.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from coterie.auditing.auditor import Auditor
from coterie.auditing.findings import Exposure
from coterie.auditing.verdict import equation
from coterie.cohorts.policies import POLICIES, PolicySettings
from coterie.errors import ConfigError
from coterie.explorer.people import NAMES
from coterie.secagg.circles import whole_circles
from coterie.settings import MOST_SEED, Option, Settings

Matrix = NDArray[np.float64]
SCALE = 10_000
"""Shares are sent as integers; this number represents 1."""


@dataclass(frozen=True)
class Story:
    """A way to run rounds: the selection policy, and the treatment of clients that leave inside a round."""

    title: str
    summary: str
    policy: str
    """A name in :data:`~coterie.cohorts.policies.POLICIES`."""
    losses: bool
    """Whether clients leave inside a round."""
    whole: bool
    """Whether a circle that lost a member is left out of the sum."""

    @property
    def circles(self) -> bool:
        """Whether people are in circles."""
        return POLICIES[self.policy].keeps_circles

    @property
    def holds(self) -> bool:
        """Whether no round can split a circle."""
        return self.circles and (self.whole or not self.losses)


STORIES: dict[str, Story] = {
    "random": Story(
        "Random cohorts",
        "Each round draws people at random. The sums overlap in ever new ways.",
        "random",
        losses=False,
        whole=False,
    ),
    "circles": Story(
        "Circles",
        "Fixed circles take part together or not at all, and nobody leaves during a round.",
        "multi-round",
        losses=False,
        whole=False,
    ),
    "naive": Story(
        "Circles, naive dropout",
        "The same circles. Somebody may leave during a round, and the server sums whoever is left.",
        "multi-round",
        losses=True,
        whole=False,
    ),
    "whole": Story(
        "Whole circles",
        "The same losses. A circle that lost a member is left out of the sum, as Coterie does it.",
        "multi-round",
        losses=True,
        whole=True,
    ),
}
"""The stories on the page, by name."""


@dataclass(frozen=True)
class LeakSettings(Settings):
    """The rounds of a story. Stories with the same settings have the same circles, cohorts and losses."""

    story: Annotated[str, Option("How cohorts are formed.", table="coterie.explorer.leaks:STORIES")] = "random"
    seed: Annotated[int, Option("Seed of every random choice.", least=0, most=MOST_SEED)] = 7
    rounds: Annotated[int, Option("Number of rounds.", least=1, most=40)] = 20
    cohort: Annotated[int, Option("People in a cohort, K.", least=2, most=12)] = 6
    privacy: Annotated[int, Option("People in a circle, T.", least=2, most=6)] = 3
    lost: Annotated[float, Option("Probability that a person leaves during a round.", least=0, most=0.5)] = 0.08

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.story not in STORIES:
            raise ConfigError(f"there is no story {self.story!r}; there are {', '.join(STORIES)}")
        if self.privacy > self.cohort:
            raise ConfigError(f"a circle of {self.privacy} does not fit into a cohort of {self.cohort}")


def play_story(settings: LeakSettings) -> dict[str, Any]:
    """Play the rounds of a story and return them, with what the sums reveal after each, as plain values for JSON."""
    story, people = STORIES[settings.story], len(NAMES)
    kind = POLICIES[story.policy]
    # Uniform selection does not look at past rounds, so that stories with losses and without have the same cohorts.
    wanted = PolicySettings(np.zeros(people), settings.cohort, settings.privacy, "uniform")
    circles = kind.compose(wanted, np.random.default_rng([settings.seed, 0]))
    policy = kind.build(circles, wanted)
    selecting, leaving = (np.random.default_rng([settings.seed, stream]) for stream in (1, 2))
    everybody = np.ones(people, dtype=np.bool_)
    auditor = Auditor(NAMES)
    rows: list[list[int]] = []
    reduced: list[list[Fraction]] = []
    rounds = []
    for number in range(1, settings.rounds + 1):
        selected = policy.select(everybody, auditor.frequencies, selecting)
        gone = leaving.random(people) < (settings.lost if story.losses else 0.0)
        present = [client for client in selected.tolist() if not gone[client]]
        summed = sorted(whole_circles(circles, present)) if story.whole else present
        before = len(auditor.exposed)
        auditor.add_round(number, [NAMES[client] for client in summed])
        if summed:
            rows.append(np.isin(np.arange(people), summed).astype(int).tolist())
            reduced = reduced_form([*reduced, rows[-1]])
        rounds.append(
            {
                "selected": selected.tolist(),
                "lost": sorted(set(selected.tolist()) - set(present)),
                "stranded": sorted(set(present) - set(summed)),
                "summed": summed,
                "strong": auditor.strong_privacy,
                "reduced": [[str(value) for value in row] for row in reduced],
                "exposed": [_exposure(found) for found in auditor.exposed[before:]],
                "known": np.rint(known_part(rows) * SCALE).astype(int)[np.triu_indices(people)].tolist(),
            }
        )
    return {
        "story": settings.story,
        "seed": settings.seed,
        "circles": sorted(sorted(circle) for circle in circles if len(circle) > 1),
        "rounds": rounds,
    }


def _exposure(found: Exposure) -> dict[str, Any]:
    # A sum is easier to read if it does not begin with a minus.
    witness = dict(sorted(found.witness.items(), key=lambda term: (term[1] < 0, term[0])))
    return {
        "person": NAMES.index(found.client),
        "terms": [{"round": label, "coefficient": str(value)} for label, value in witness.items()],
        "words": equation(witness, {found.client: Fraction(1)}),
    }


def reduced_form(rows: Sequence[Sequence[int | Fraction]]) -> list[list[Fraction]]:
    """Return the reduced row echelon form of a matrix, without rows of zeros, in exact arithmetic."""
    left = [[Fraction(value) for value in row] for row in rows]
    done: list[list[Fraction]] = []
    for column in range(len(rows[0]) if rows else 0):
        at = next((index for index, row in enumerate(left) if row[column]), None)
        if at is None:
            continue
        row = left.pop(at)
        pivot = [value / row[column] for value in row]
        for others in (done, left):
            others[:] = [[a - other[column] * b for a, b in zip(other, pivot, strict=True)] for other in others]
        done.append(pivot)
    return done


def known_part(rows: Sequence[Sequence[int]]) -> Matrix:
    """Return the projection onto the row space of the participation matrix, M = P⁺P.

    M X is the least-squares guess of the vectors X, given the sums P X. Row i of M says how much of each person the
    guess of person i contains. A person is exposed if and only if the row is that person's unit vector. In a circle of
    T that is never split no entry exceeds 1/T: the guess shows the mean of the circle.
    """
    if not rows:
        return np.zeros((len(NAMES), len(NAMES)))
    matrix = np.array(rows, dtype=np.float64)
    projection: Matrix = np.linalg.pinv(matrix) @ matrix
    return projection
