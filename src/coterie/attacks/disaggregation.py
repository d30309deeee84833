"""Disaggregation without the log: who was in which sum, found from the sums themselves (Lam et al. 2021).

If updates hardly change, the n x d matrix of sums S is P D, and its column space is that of P, whose columns say in
which rounds each client took part. So the column p of a client is a vector of zeros and ones in a space that the
attacker knows. With V an orthonormal basis of the rest of R^n, and how often the client took part in each period
(A p = c, from telemetry, say, or billing), p is found by a mixed-integer linear program,

    minimise ||V^T p||_1   over p in {0, 1}^n with A p = c,

column by column. (Lam et al. take the 2-norm; the 1-norm has the same zeros, and the program stays linear.) With P at
hand, :mod:`coterie.attacks.differencing` does the rest.

Members of a circle have equal columns and equal counts, hence the same program and the same solution: the log comes out
all the same, and what is taken out of the sums with it are sums over circles.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from coterie.attacks.differencing.algebra import reconstruct, relative_errors, told_apart
from coterie.attacks.differencing.simulated import Differencing, Steps
from coterie.attacks.finding import Adversary, AttackFinding, CardLine, Effect, OnProgress, WordTable
from coterie.attacks.rounds import Matrix, Side, Sightings, stretch
from coterie.cohorts.circles import Indices, Mask, Reals
from coterie.errors import ConfigError, InputError
from coterie.reports.intervals import spread, spread_cell
from coterie.reports.words import Level, count

_NODES = 50  # of a search tree: a limit in seconds would make results depend on the machine
_RECOVERED = 0.05


def column_space(totals: Matrix, clients: int) -> Matrix:
    """Return an orthonormal basis of what P spans: the strongest directions, one for each client if there are so many.

    With updates that change a little, weak directions are in it that P does not span: they make the search wider.
    """
    directions, strengths, _ = np.linalg.svd(totals, full_matrices=False)
    floor = strengths[0] * np.finfo(np.float64).eps * max(totals.shape)
    rank = min(clients, len(totals) - 1, int(np.count_nonzero(strengths > floor)))
    return np.asarray(directions[:, :rank])


def period_counts(participation: Mask, period: int) -> Indices:
    """Return how often each client took part in each period of so many rounds: periods in rows."""
    return np.add.reduceat(participation.astype(np.int64), np.arange(0, len(participation), period), axis=0)


def find_column(space: Matrix, counts: Indices, period: int) -> Mask | None:
    """Return the zeros and ones with these counts that are nearest to a space; None where the search found none."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    rounds, rank = space.shape
    rest = np.linalg.qr(space, mode="complete")[0][:, rank:].T
    slack = np.eye(len(rest))
    periods = np.arange(rounds) // period
    totals = np.hstack([periods == np.arange(counts.size)[:, None], np.zeros((counts.size, len(rest)))])
    found = milp(
        np.repeat([0.0, 1.0], [rounds, len(rest)]),
        integrality=np.repeat([1, 0], [rounds, len(rest)]),
        bounds=Bounds(0, np.repeat([1.0, np.inf], [rounds, len(rest)])),
        constraints=[
            LinearConstraint(totals, counts, counts),
            LinearConstraint(np.vstack([np.hstack([rest, -slack]), np.hstack([-rest, -slack])]), -np.inf, 0),
        ],
        options={"node_limit": _NODES},
    )
    return None if found.x is None else np.asarray(found.x[:rounds] > 0.5)


def disaggregate(totals: Matrix, counts: Indices, period: int) -> Mask:
    """Return the participation matrix: a column for each client, of False where none was found."""
    if len(counts) != -(-len(totals) // period):
        raise InputError(f"{len(totals)} rounds are not {len(counts)} periods of {period}")
    space = column_space(totals, counts.shape[1])
    columns, classes = np.unique(counts, axis=1, return_inverse=True)
    nobody = np.zeros(len(totals), np.bool_)
    found = [find_column(space, column, period) for column in columns.T]  # equal counts, equal programs
    return np.stack([nobody if one is None else one for one in found], axis=1)[:, classes.ravel()]


def entries_right_by_counts(counts: Indices, lengths: Indices) -> float:
    """Return the share of P's entries that who knows the counts alone is expected to get right at best."""
    shares = counts / lengths[:, None]
    right = np.maximum(shares, 1 - shares) * lengths[:, None]
    return float(right.sum() / (lengths.sum() * counts.shape[1]))


@dataclass(frozen=True, eq=False)
class HiddenLogTrial:
    """What came of one window without its log."""

    columns: float
    """The share of clients whose rounds were found, all of them."""
    entries: float
    guess: float
    """The share of entries that the counts alone give away."""
    errors: Reals = field(repr=False)
    """Of the updates taken out with the matrix that was found."""
    with_log: Reals = field(repr=False)
    """The same with the true one."""
    told_apart: float


@dataclass(frozen=True)
class Disaggregation:
    """The attack on a window of rounds whose log is hidden."""

    name: ClassVar[str] = "disaggregation"
    title: ClassVar[str] = "Disaggregation without the log"

    clients: int = 10
    cohort: int = 4
    privacy: int = 2
    rounds: int = 40
    period: int = 8
    trials: int = 2
    steps: Steps = "small"
    data: str = "digits"
    model: str = "mlp"
    data_dir: str | None = None
    before: int = 60
    learning_rate: float = 0.1
    batch_size: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.period <= self.rounds:
            raise ConfigError(f"a period must have from 1 to {self.rounds} rounds, not {self.period}")

    @property
    def threat(self) -> Adversary:
        """A server that does not log who takes part, or an eavesdropper on its sums."""
        return Adversary(
            who="whoever sees the sums, honest but curious, where the log of participation is hidden",
            sees="the sum of each round's updates, and how many clients are in it",
            knows=f"how often each client took part in each period of {self.period} rounds, from telemetry, say; not "
            "in which",
            may="compute",
        )

    def play(self, watch: OnProgress) -> AttackFinding:
        """Train, hide the log, find it again, and take the sums apart with it."""
        training = self._training
        found: dict[str, list[HiddenLogTrial]] = {}
        for trial in range(self.trials):
            began, length = trial / self.trials, 1 / self.trials
            victims, state = training.prepare(trial, stretch(watch, "training", began, length / 2))
            for number, side in enumerate(training.sides(trial)):
                watch(side.name, began + length * (0.5 + number / 4))
                seen = Sightings.of(training.window(victims, state, side), self.clients)
                found.setdefault(side.name, []).append(self.attack(seen, side))
        watch("telling", 1.0)
        return _tell(self, training.sides(0), found)

    def attack(self, seen: Sightings, side: Side) -> HiddenLogTrial:
        """Find P from the sums and the counts, and compare with what it was."""
        sizes = seen.participation.sum(1)
        totals = seen.means * sizes[:, None]
        counts = period_counts(seen.participation, self.period)
        matrix = disaggregate(totals, counts, self.period)
        right = matrix == seen.participation
        some = matrix.any(1)
        estimate = reconstruct(matrix[some], totals[some] / matrix[some].sum(1)[:, None])
        there = seen.seen
        lengths = np.diff([*range(0, len(totals), self.period), len(totals)])
        return HiddenLogTrial(
            columns=float(right.all(0).mean()),
            entries=float(right.mean()),
            guess=entries_right_by_counts(counts, lengths),
            errors=relative_errors(seen.truth[there], estimate[there]),
            with_log=relative_errors(seen.truth[there], reconstruct(seen.participation, seen.means)[there]),
            told_apart=told_apart(seen.truth, estimate, side.mates),
        )

    @property
    def _training(self) -> Differencing:
        return Differencing(
            clients=self.clients,
            cohort=self.cohort,
            privacy=(self.privacy,),
            rounds=self.rounds,
            trials=self.trials,
            steps=self.steps,
            data=self.data,
            model=self.model,
            data_dir=self.data_dir,
            before=self.before,
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            seed=self.seed,
        )


def _tell(attack: Disaggregation, sides: Sequence[Side], found: dict[str, list[HiddenLogTrial]]) -> AttackFinding:
    results = {side.name: _numbers(found[side.name]) for side in sides}
    held = all(trial.told_apart == 0.5 for trial in found["multi-round"])
    random, circles = results["random"], results["multi-round"]
    steps = "hardly change" if attack.steps == "small" else "change as in ordinary training"
    helps = "Hiding the log does not help" if random["median_error"] < _RECOVERED else "Hiding the log helps here"
    return AttackFinding(
        level=Level.SAFE if held else Level.DANGER,
        headline=f"{helps}: with random selection {random['columns_recovered']:.0%} of it come out of the sums, and "
        f"updates with a median error of {random['median_error']:.2g} ({random['median_error_with_log']:.2g} with the "
        f"log). With circles of {attack.privacy} {circles['columns_recovered']:.0%} come out, and "
        + ("nobody is told from its circle." if held else "circles did not hold."),
        setting=f"{attack.clients} clients with few labels each of {attack.data} train {attack.model}, {attack.cohort} "
        f"in a round; then sums of {attack.rounds} rounds are watched in which updates {steps}. The attacker knows how "
        f"many clients are in a sum, and each client's number of rounds out of every {attack.period}. "
        f"{count(attack.trials, 'trial')}. Sums are added up in the clear, since nothing else of a round is used.",
        measures={"policies": results},
        tables=[_table(attack, results)],
        card=list(_card(attack, results, held=held)),
        remarks=[
            "Without any counts, the columns of P still are the zeros and ones in the column space, but whose is whose "
            "is not known.",
            "Hiding the log takes away what an audit is made from; circles hold with the log in the open.",
        ],
    )


def _numbers(trials: Sequence[HiddenLogTrial]) -> dict[str, Any]:
    return {
        "columns_recovered": float(np.mean([trial.columns for trial in trials])),
        "columns_recovered_spread": spread([trial.columns for trial in trials]),
        "entries_right": float(np.mean([trial.entries for trial in trials])),
        "entries_right_by_counts_alone": float(np.mean([trial.guess for trial in trials])),
        "median_error": float(np.median(np.concatenate([trial.errors for trial in trials]))),
        "median_error_with_log": float(np.median(np.concatenate([trial.with_log for trial in trials]))),
        "circle_mates_told_apart": float(np.mean([trial.told_apart for trial in trials])),
    }


def _table(attack: Disaggregation, results: dict[str, dict[str, Any]]) -> WordTable:
    names = {"random": "random selection", "multi-round": f"circles of {attack.privacy}"}
    return WordTable(
        "The log as found, and what it is good for",
        (
            "selection",
            "columns found",
            "± over trials",
            "entries right",
            "by counts alone",
            "error",
            "with the log",
            "told apart",
        ),
        [
            (
                names[side],
                f"{one['columns_recovered']:.0%}",
                spread_cell(one["columns_recovered_spread"], ".0%"),
                f"{one['entries_right']:.1%}",
                f"{one['entries_right_by_counts_alone']:.1%}",
                f"{one['median_error']:.2g}",
                f"{one['median_error_with_log']:.2g}",
                f"{one['circle_mates_told_apart']:.0%}",
            )
            for side, one in results.items()
        ],
        "By counts alone: what who does not look at the sums gets right at best. Error: median, of updates. Told "
        "apart: two members of a circle, or of a group drawn like one, matched with their updates; 50% is guessing.",
    )


def _card(attack: Disaggregation, results: dict[str, dict[str, Any]], *, held: bool) -> Iterator[CardLine]:
    for side, against in ("random", "random selection"), ("multi-round", f"circles of {attack.privacy}"):
        one = results[side]
        above = one["entries_right"] > one["entries_right_by_counts_alone"]
        yield CardLine(
            "find out who took part when",
            f"{against}, log hidden",
            Effect.NOT_ELIMINATED if above else Effect.REDUCED,
            f"{one['entries_right']:.1%} of it are found; by counts alone {one['entries_right_by_counts_alone']:.1%}",
        )
    error = results["random"]["median_error"]
    yield CardLine(
        "single out a client's update",
        "random selection, log hidden",
        Effect.NOT_ELIMINATED if error < 1 else Effect.REDUCED,
        f"median error {error:.2g}",
    )
    yield CardLine(
        "single out a client's update",
        f"circles of {attack.privacy}, log hidden",
        Effect.ELIMINATED if held else Effect.NOT_ELIMINATED,
        "circle mates have one and the same column, found or not: told apart as by guessing"
        if held
        else "circle mates were told apart",
    )
