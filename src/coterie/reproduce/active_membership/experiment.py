"""Active membership inference: a table is a data set or a number of participants, a row a way to learn.

A job trains one method, lets the attackers watch, and lets them attack from the same standing. Trial number i has the
same examples, targets and random labels in every row, and everything else is equal too: steps, rounds, strength.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from coterie.attacks.active_membership.methods import MethodName
from coterie.errors import ConfigError
from coterie.reproduce.declarations import Job, Record
from coterie.settings import read_table

if TYPE_CHECKING:
    from coterie.attacks.active_membership.measure import ActiveMembership
    from coterie.reproduce.declarations import Findings, JobContext


class AttackTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What all rows of a table share: settings of :class:`~coterie.attacks.active_membership.ActiveMembership`."""

    name: str
    settings: dict[str, Any] = msgspec.field(name="set", default={})
    without: tuple[MethodName, ...] = ()


class AttackClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A claim that a number under attack lies in a range; or by how much it exceeds another, trial by trial.

    ``accuracy``, ``utility``, what is ``lost`` of it to the attack, and ``spread`` are in points, ``auc`` from 0 to 1.
    Attackers infer from their own model, or from ``view``.
    """

    says: str
    tables: tuple[str, ...] = ()
    """Where it is judged; everywhere if none is named."""
    method: MethodName
    against: Literal["", "watched", "fedavg", "ditto", "confined"] = ""
    """Another method under the same attack; or ``watched``, this one where attackers only watch."""
    measure: Literal["accuracy", "auc", "utility", "lost", "spread"] = "accuracy"
    view: str = ""
    watching: bool = False
    """Whether it is about attackers who only watch."""
    least: float = float("-inf")
    most: float = float("inf")


class AttackExperiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The experiment, an :class:`~coterie.reproduce.declarations.Experiment`: a part is a table, a case a method."""

    attack: dict[str, Any] = {}
    """Settings of all attacks."""
    tables: tuple[AttackTable, ...]
    methods: tuple[MethodName, ...]
    paper: dict[str, dict[str, float]] = {}
    """What the paper printed as success of the attack, in percent: by method, then by table."""
    paper_utility: dict[str, dict[str, float]] = {}
    """The same for the accuracy under attack."""
    paper_spread: dict[str, dict[str, float]] = {}
    """The same for its standard deviation over participants, in points."""
    claims: tuple[AttackClaim, ...] = ()
    notes: tuple[str, ...] = ()

    def jobs(self, trials: int) -> list[Job]:
        """Each method in each table in every trial."""
        return [
            Job(table.name, method, trial)
            for trial in range(trials)
            for table in self.tables
            for method in self.methods
            if method not in table.without
        ]

    def attacked(self, table: str, seed: int, data: Path | None) -> ActiveMembership:
        """Return the attack of a table."""
        from coterie.attacks.active_membership.measure import ActiveMembership

        own = next(one.settings for one in self.tables if one.name == table)
        settings = {**self.attack, **own, "seed": seed, "data_dir": str(data) if data else None}
        attack = read_table(ActiveMembership, settings, table)
        if attack.strength is None:
            raise ConfigError(f"{table}: the strength of the attack is part of the declaration")
        return attack

    def run(self, job: Job, seed: int, context: JobContext) -> Record | None:
        """Watch one method, and attack it."""
        from coterie.attacks.active_membership.trial import know_nothing, play

        attack = self.attacked(job.part, seed, context.data)
        scene = attack.scene(job.trial)
        strengths = (0.0, attack.strength or 0.0)
        method: MethodName = msgspec.convert(job.case, MethodName)
        trial = play(method, scene, attack.recipe, attack.schedule, strengths)
        nothing = know_nothing(scene, attack.recipe, attack.rounds)
        return {"trial": asdict(trial), "nothing": asdict(nothing)}

    def progress(self, job: Job, folder: Path) -> float:
        """Nothing is known before a job is done."""
        return 0.0

    def report(self, records: Mapping[Job, Record]) -> Findings:
        """Tables beside the paper's; see :mod:`coterie.reproduce.active_membership.report`."""
        from coterie.reproduce.active_membership.report import make_report

        return make_report(self, records)

    def retell(self, summary: Record) -> Findings:
        """The same from the outcomes of a summary."""
        from coterie.reproduce.active_membership.report import retell_report

        return retell_report(self, summary)
