"""Membership inference, tried again: a case is how many examples the clients train on together.

A job is one trial of :mod:`coterie.attacks.membership.measure`: victims and reference models with new examples, a new
model and new members, and every attack on everything that is seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from coterie.errors import ConfigError
from coterie.reproduce.declarations import Job, Record
from coterie.settings import read_table

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.attacks.membership.measure import Game
    from coterie.reproduce.declarations import Findings, JobContext


class PrintedRates(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the paper prints for a number of training examples: accuracy and precision in per cent.

    Each is for plain averaging, SA and CCESA.
    """

    examples: int
    accuracy: tuple[float, float, float]
    precision: tuple[float, float, float]


class MembershipTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The experiment, an :class:`~coterie.reproduce.declarations.Experiment`."""

    game: dict[str, Any]
    """Settings of a :class:`~coterie.attacks.membership.measure.Game`, but for the examples of each client."""
    totals: tuple[int, ...]
    """How many examples all clients have together."""
    paper: tuple[PrintedRates, ...] = ()
    notes: tuple[str, ...] = ()

    def jobs(self, trials: int) -> list[Job]:
        """All totals in every trial."""
        return [Job("membership", str(total), trial) for trial in range(trials) for total in self.totals]

    def run(self, job: Job, seed: int, context: JobContext) -> Record:
        """Play a trial."""
        from coterie.attacks.membership.measure import play_trial, trial_seed

        trial = play_trial(self.settled(int(job.case), context.data), trial_seed(seed, job.trial))
        found: Record = msgspec.to_builtins(trial)
        return found

    def settled(self, total: int, data: Path | None = None) -> Game:
        """Return the game in which all clients have ``total`` examples together."""
        from coterie.attacks.membership.measure import Game

        clients = self.game["cohorts"][-1]
        if total % clients:
            raise ConfigError(f"{total} examples cannot be dealt evenly to {clients} clients")
        folder = {} if data is None else {"data_dir": str(data)}
        return read_table(Game, {**self.game, **folder, "examples": total // clients}, "settings of the game")

    def progress(self, job: Job, folder: Path) -> float:
        """Nothing is known before a job is done."""
        return 0.0

    def report(self, records: Mapping[Job, Record]) -> Findings:
        """Attacks on each view beside the paper's; see :mod:`coterie.reproduce.membership.report`."""
        from coterie.reproduce.membership.report import make_report

        return make_report(self, records)

    def retell(self, summary: Record) -> Findings:
        """The same from the trials of a summary."""
        from coterie.reproduce.membership.report import retell_report

        return retell_report(self, summary)
