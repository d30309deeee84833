"""Membership inference over several trials: a case is the number of examples that all clients have together.

A job is one trial of :mod:`coterie.attacks.membership`: victims and reference models with new examples, a new model and
new members, and every attack on every view. Summaries and the table of each case are the attack's own; the experiment
adds trials, the paper's table and claims (Choi et al. 2020, Tables 5.2 and A.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np

from coterie.attacks.membership.measure import (
    CLIENT,
    NOTHING,
    SECURE,
    SPARSE,
    PassiveMembership,
    PassiveTrial,
    play_trial,
    sum_of,
    trial_seed,
)
from coterie.attacks.membership.report import views_table
from coterie.attacks.membership.statistics import (
    ATTACKS,
    GUESSING,
    InferenceSummary,
    mean_accuracy,
    strongest,
    summarise,
    summarise_budget,
)
from coterie.cohorts.circles import Reals
from coterie.errors import ConfigError
from coterie.reports.findings import Claim, Drawing, Findings, Table
from coterie.reports.intervals import mean_interval, write_reach
from coterie.reports.plots import BLUE, OCHRE, QUIET, foot_legend, page
from coterie.reproduce.experiment import Count, Experiment, Job, JobContext, Record
from coterie.reproduce.verdicts import RULE, Scale, Verdict, correct, judge_mean, settle
from coterie.settings import read_table

_PAPERS_ATTACK = "shadow"
_PROTOCOLS = {CLIENT: "FedAvg", SECURE: "SA", SPARSE: "CCESA"}
_NEAR = 0.03
"""The largest distance from 50% at which an accuracy counts as guessing: those of the paper are within 1%."""
_FULL_RECALL = 0.95
_EXPLANATION = (
    "The same attacks, with the same number of reference models, run on a client's own model (plain averaging), on "
    "its masked upload in a real session (SA on the complete graph, CCESA on an Erdős-Rényi graph), and on the global "
    "model, which is the sum that all of these protocols reveal. *Nothing*: the same scores judged against newly "
    "drawn members, as for an attacker who saw nothing. Intervals are over trials, with a confidence of 95%; those of "
    "members found are Clopper and Pearson's, and treat all candidates as independent."
)


class PrintedRates(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the paper prints for a number of training examples: accuracy and precision in per cent.

    Each is for plain averaging, SA and CCESA.
    """

    examples: Count
    accuracy: tuple[float, float, float]
    precision: tuple[float, float, float]

    @property
    def recall(self) -> float:
        """The recall of plain averaging: with as many members as others, accuracy and precision determine it."""
        accuracy, precision = self.accuracy[0] / 100, self.precision[0] / 100
        return (2 * accuracy - 1) / (2 - 1 / precision)


Trials: TypeAlias = dict[str, list[PassiveTrial]]
"""All trials, by the number of examples."""
Summaries: TypeAlias = Mapping[str, Mapping[str, Mapping[str, InferenceSummary]]]
"""The success of every attack, by the number of examples, then by view."""


class MembershipTable(Experiment[Trials], frozen=True, kw_only=True):
    """The experiment."""

    game: dict[str, Any]
    """Settings of :class:`~coterie.attacks.membership.measure.PassiveMembership`, without the examples of a client."""
    totals: tuple[Count, ...]
    """How many examples all clients have together."""
    paper: tuple[PrintedRates, ...] = ()
    paper_data: str = ""
    paper_model: str = ""

    kept = "trials"
    outcomes = Trials

    def cases(self) -> list[tuple[str, str]]:
        """All numbers of examples."""
        return [("membership", str(total)) for total in self.totals]

    def check(self) -> None:
        """Refuse settings that the attack refuses, and totals that cannot be dealt evenly."""
        for total in self.totals:
            self.make_game(total)

    def measure(self, job: Job, seed: int, context: JobContext) -> Record:
        """Play a trial."""
        trial = play_trial(self.make_game(int(job.case), context.data), trial_seed(seed, job.trial))
        found: Record = msgspec.to_builtins(trial)
        return found

    def make_game(self, total: int, data: Path | None = None) -> PassiveMembership:
        """Return the game in which all clients have ``total`` examples together."""
        clients = self.game["cohorts"][-1]
        if total % clients:
            raise ConfigError(f"{total} examples cannot be dealt evenly to {clients} clients")
        folder = {} if data is None else {"data_dir": str(data)}
        return read_table(
            PassiveMembership, {**self.game, **folder, "examples": total // clients}, "settings of the game"
        )

    def collect(self, records: Mapping[Job, Record]) -> Trials:
        """Return the trials of each number of examples."""
        trials: Trials = {}
        for job, record in records.items():
            trials.setdefault(job.case, []).append(msgspec.convert(record, PassiveTrial))
        return trials

    def keep(self, trials: Trials) -> Record:
        """Keep the trials, and summaries for readers of the file."""
        return {
            "trials": msgspec.to_builtins(trials),
            "summaries": {
                total: {
                    view: {attack: one.record() for attack, one in attacks.items()}
                    for view, attacks in summarise(some).items()
                }
                for total, some in trials.items()
            },
        }

    def report(self, trials: Trials) -> Findings:
        """Report every view beside the numbers of the paper."""
        summaries, views = {total: summarise(some) for total, some in trials.items()}, self.views
        at = {total: f"{self.game['data']}, {int(total):,} examples" for total in trials}
        claims = correct(
            [
                *(
                    claim
                    for total, some in trials.items()
                    for claim in self._judge(at[total], some, self._missing(int(total)))
                ),
                *self._judge_recall(),
            ]
        )
        return Findings(
            headlines=[
                *(_headline(int(total), views, found) for total, found in summaries.items()),
                *(claim.headline for claim in claims),
            ],
            about=_EXPLANATION,
            claims=claims,
            claims_note=RULE,
            tables=[
                _papers_table(self.paper, summaries),
                *(
                    views_table(f"{int(total):,} examples", views, summaries[total], mean_accuracy(some))
                    for total, some in trials.items()
                ),
                _budget_table(views, trials),
            ],
            drawings=[Drawing("membership.png", partial(_draw, views, summaries))],
        )

    def _missing(self, total: int) -> list[str]:
        """List how a case falls short of the paper, which has a number of examples for each of its rows."""
        model = self.game["model"]
        other = [f"{model} in place of {self.paper_model}"] if model != self.paper_model else []
        least = min((one.examples for one in self.paper), default=0)
        return [*Scale(examples=total).shortfalls(Scale(examples=least)), *other]

    def _judge(self, at: str, trials: Sequence[PassiveTrial], missing: Sequence[str]) -> Iterator[Claim]:
        """Judge what the paper says of one number of examples; on other data than the paper's, all are own checks."""
        ours = self.game["data"] != self.paper_data

        def accuracies(view: str) -> Reals:
            return np.array([trial.views[view][_PAPERS_ATTACK].decisions.balanced_accuracy for trial in trials])

        plain = accuracies(CLIENT)
        recall = np.array([trial.views[CLIENT][_PAPERS_ATTACK].decisions.recall for trial in trials])
        yield settle(
            f"Table 5.2: plain averaging tells members better than guessing ({at})",
            f"accuracy {_percent(plain)}",
            judge_mean(plain, GUESSING, inf, margin=_NEAR),
            missing,
            ours=ours,
            effort=self.effort(),
        )
        for view in (SECURE, SPARSE):  # masked uploads are uniformly random, at any size
            found = accuracies(view)
            says = f"Table 5.2: under {_PROTOCOLS[view]} the attack is guessing, to {_NEAR:.0%} ({at})"
            verdict = judge_mean(found, GUESSING - _NEAR, GUESSING + _NEAR)
            yield settle(says, f"accuracy {_percent(found)}", verdict, ours=ours, construction=True)
        if ours:
            says = f"Tables 5.2 and A.3: recall is close to 1 ({at})"
            yield settle(says, f"recall {_percent(recall)}", judge_mean(recall, _FULL_RECALL, inf), ours=True)

    def _judge_recall(self) -> Iterator[Claim]:
        """Judge what the paper says of recall by its own numbers: accuracy and precision determine it."""
        if self.game["data"] == self.paper_data and self.paper:
            recalls = [one.recall for one in self.paper]
            yield settle(
                f"Tables 5.2 and A.3: recall of plain averaging is close to 1, {_FULL_RECALL:.0%} at least",
                f"its own accuracy and precision give {', '.join(f'{recall:.0%}' for recall in recalls)}",
                Verdict.exact(min(recalls) >= _FULL_RECALL),
            )

    @property
    def views(self) -> dict[str, str]:
        """The views in words."""
        game = self.make_game(self.totals[0])
        last = game.cohorts[-1]
        names = {
            NOTHING: "nothing",
            CLIENT: "client's model (FedAvg)",
            SECURE: "masked upload (SA)",
            SPARSE: f"masked upload (CCESA, p={game.connection:g})",
            **{sum_of(clients): f"sum of {clients}" for clients in game.cohorts},
        }
        return names | ({sum_of(last, noisy=True): f"sum of {last}, noise {game.noise:g}"} if game.noise else {})


def _headline(total: int, views: Mapping[str, str], found: Mapping[str, Mapping[str, InferenceSummary]]) -> str:
    chosen = strongest(found[CLIENT])
    shown = ", ".join(f"{name} {found[view][chosen].auc:.2f}" for view, name in views.items() if view in found)
    return f"{total:,} examples, AUC of {ATTACKS[chosen]} (the strongest on plain averaging): {shown}."


def _papers_table(paper: Sequence[PrintedRates], summaries: Summaries) -> Table:
    rows = [
        (f"{one.examples:,}, paper", *(f"{value:.2f}" for value in (*one.accuracy, *one.precision))) for one in paper
    ]
    for total, found in summaries.items():
        ours = [found[view][_PAPERS_ATTACK] for view in _PROTOCOLS]
        accuracies = [write_reach(one.balanced_accuracy, one.balanced_accuracy_interval, ".2f", 100) for one in ours]
        precisions = ["–" if one.precision is None else f"{100 * one.precision:.2f}" for one in ours]
        rows.append((f"{int(total):,}, ours", *accuracies, *precisions))
    headings = [f"{what} {protocol}" for what in ("accuracy", "precision") for protocol in _PROTOCOLS.values()]
    lead = "Accuracy and precision of the shadow attack, in per cent."
    return Table("The paper's table, and ours", ("examples", *headings), rows, lead=lead)


def _budget_table(views: Mapping[str, str], trials: Trials) -> Table:
    budgets = {total: summarise_budget(some) for total, some in trials.items()}
    sizes = [size for size, _ in next(iter(next(iter(next(iter(budgets.values())).values())).values()))]
    rows = [
        (f"{int(total):,}, {views[view]}, {ATTACKS[attack]}", *(f"{area:.3f}" for _, area in curve))
        for total, seen in budgets.items()
        for view, attacks in seen.items()
        for attack, curve in attacks.items()
    ]
    columns = ("examples, seen, attack", *map(str, sizes))
    return Table("AUC and the number of reference models", columns, rows, lead="Mean AUC with fewer of them.")


def _percent(values: Reals) -> str:
    low, high = mean_interval(values)
    return f"{low:.1%} to {high:.1%}" if np.isfinite(low) else "unknown: one trial has no interval"


def _draw(views: Mapping[str, str], summaries: Summaries, path: Path) -> None:
    places = np.arange(len(views))
    panels = [f"{int(total):,} examples" for total in summaries]
    with page(
        path,
        "AUC of membership inference",
        "AUC of two attacks on everything that is seen; 0.5 is guessing. Whiskers are 95% intervals over trials.",
        panels,
        (4.2 + 4.6 * len(panels), 5.4),
        margin=2.6,
        legend=True,
    ) as axes:
        for number, (one, found) in enumerate(zip(axes, summaries.values(), strict=True)):
            for shift, (attack, color) in zip((-0.12, 0.12), (("lira", BLUE), ("rmia", OCHRE)), strict=True):
                shown = [found[view][attack] for view in views]
                values, reach = [some.auc for some in shown], [some.auc_reach for some in shown]
                one.errorbar(values, places + shift, xerr=reach, fmt="o", color=color, label=ATTACKS[attack])
            one.axvline(GUESSING, color=QUIET, linewidth=1, linestyle="--")
            one.set(xlim=(0.3, 1.0), xlabel="AUC", ylim=(len(views) - 0.5, -0.5))
            one.set_yticks(places, list(views.values()) if not number else [""] * len(views))
            one.grid(visible=False)
        foot_legend(axes[0])
