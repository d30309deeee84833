"""The report on :mod:`coterie.reproduce.membership.experiment`: every view beside what the paper prints."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from coterie.attacks.membership.measure import CLIENT, NOTHING, SECURE, SPARSE, PassiveTrial, sum_of
from coterie.attacks.membership.passive import ATTACKS
from coterie.attacks.membership.summary import (
    GUESSING,
    InferenceSummary,
    mean_accuracy,
    strongest,
    summarise,
    summarise_budget,
)
from coterie.errors import ConfigError
from coterie.reports import markdown
from coterie.reports.intervals import mean_interval
from coterie.reports.plots import BLUE, OCHRE, QUIET, foot_legend, page
from coterie.reproduce.claims import Claim, judge, write_claims
from coterie.reproduce.declarations import Findings, Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from coterie.reproduce.declarations import Job
    from coterie.reproduce.membership.experiment import MembershipTable, PrintedRates

_PAPERS_ATTACK = "shadow"
_PROTOCOLS = {CLIENT: "FedAvg", SECURE: "SA", SPARSE: "CCESA"}
_NEAR = 0.03
"""How far from 50% an accuracy may be to be called guessing: the paper's own are up to 1% away."""
_FULL_RECALL = 0.95
_EXPLANATION = (
    "The same attacks, with as many reference models, look at a client's own model (plain averaging), at its masked "
    "upload in a real session (SA on the complete graph, CCESA on an Erdős-Rényi graph), and at the global model, "
    "which is the sum that every one of these protocols publishes. *Nothing* are the same scores judged by members "
    "drawn anew: an attacker who saw nothing. Intervals are over trials, with a confidence of 95%; those of members "
    "found are Clopper and Pearson's, as if all candidates were independent."
)


def make_report(experiment: MembershipTable, records: Mapping[Job, Record]) -> Findings:
    """Put everything together from the trials that were played."""
    trials: dict[str, list[PassiveTrial]] = {}
    for job, record in records.items():
        trials.setdefault(job.case, []).append(msgspec.convert(record, PassiveTrial))
    return _report(experiment, trials)


def retell_report(experiment: MembershipTable, summary: Record) -> Findings:
    """Put everything together from the trials of an earlier report."""
    try:
        return _report(experiment, msgspec.convert(summary["trials"], dict[str, list[PassiveTrial]]))
    except (KeyError, msgspec.ValidationError) as error:
        raise ConfigError(f"the results do not hold the trials: {error}") from None


def _report(experiment: MembershipTable, trials: Mapping[str, Sequence[PassiveTrial]]) -> Findings:
    summaries = {total: summarise(some) for total, some in trials.items()}
    claims = [claim for total, some in trials.items() for claim in _claims(experiment, int(total), some)]
    views = _views(experiment)
    parts = [
        _EXPLANATION,
        write_claims(claims),
        "## The paper's table, and ours",
        "Accuracy and precision of the shadow attack, in per cent.",
        _papers_table(experiment.paper, summaries),
        *(
            text
            for total, some in trials.items()
            for text in (f"## {int(total):,} examples", _table(views, summaries[total], mean_accuracy(some)))
        ),
        "## How many reference models it takes",
        "Mean AUC with fewer of them.",
        _budget_table(views, trials),
        "## Notes",
        markdown.bullets(experiment.notes),
    ]
    return Findings(
        headlines=[*(_headline(int(total), views, found) for total, found in summaries.items()), *_said(claims)],
        text="\n\n".join(parts),
        summary={
            "claims": [claim.summary() for claim in claims],
            "trials": msgspec.to_builtins(trials),
            "summaries": {
                total: {
                    view: {attack: one.record() for attack, one in attacks.items()} for view, attacks in found.items()
                }
                for total, found in summaries.items()
            },
        },
        figures={"membership.png": partial(_draw, views, summaries)},
    )


def _views(experiment: MembershipTable) -> dict[str, str]:
    game = experiment.settled(experiment.totals[0])
    last = game.cohorts[-1]
    names = {
        NOTHING: "nothing",
        CLIENT: "client's model (FedAvg)",
        SECURE: "masked upload (SA)",
        SPARSE: f"masked upload (CCESA, p={game.connection:g})",
        **{sum_of(clients): f"sum of {clients}" for clients in game.cohorts},
    }
    return names | ({sum_of(last, noisy=True): f"sum of {last}, noise {game.noise:g}"} if game.noise else {})


def _claims(experiment: MembershipTable, total: int, trials: Sequence[PassiveTrial]) -> list[Claim]:
    def accuracies(view: str) -> tuple[float, float]:
        return mean_interval(
            np.array([trial.views[view][_PAPERS_ATTACK].decisions.balanced_accuracy for trial in trials])
        )

    plain, recall = (
        accuracies(CLIENT),
        mean_interval(np.array([trial.views[CLIENT][_PAPERS_ATTACK].decisions.recall for trial in trials])),
    )
    at = f"{experiment.game['data']}, {total:,} examples"
    claims = [
        Claim(
            f"Table 5.2: plain averaging tells members better than guessing ({at})",
            f"accuracy {_percent(plain)}",
            judge(plain, float(np.nextafter(GUESSING, 1)), inf),
        )
    ]
    for view in (SECURE, SPARSE):
        found = accuracies(view)
        says = f"Table 5.2: under {_PROTOCOLS[view]} the attack is guessing, to {_NEAR:.0%} ({at})"
        claims.append(Claim(says, f"accuracy {_percent(found)}", judge(found, GUESSING - _NEAR, GUESSING + _NEAR)))
    claims.append(
        Claim(
            f"Tables 5.2 and A.3: recall is close to 1 ({at})",
            f"recall {_percent(recall)}",
            judge(recall, _FULL_RECALL, inf),
        )
    )
    return claims


def _said(claims: Sequence[Claim]) -> list[str]:
    return [claim.headline for claim in claims]


def _headline(total: int, views: Mapping[str, str], found: Mapping[str, Mapping[str, InferenceSummary]]) -> str:
    chosen = strongest(dict(found[CLIENT]))
    shown = ", ".join(f"{name} {found[view][chosen].auc:.2f}" for view, name in views.items() if view in found)
    return f"{total:,} examples, AUC of {ATTACKS[chosen]} (the strongest on plain averaging): {shown}."


def _papers_table(
    paper: Sequence[PrintedRates], summaries: Mapping[str, Mapping[str, Mapping[str, InferenceSummary]]]
) -> str:
    rows = [
        (f"{one.examples:,}, paper", *(f"{value:.2f}" for value in (*one.accuracy, *one.precision))) for one in paper
    ]
    for total, found in summaries.items():
        ours = [found[view][_PAPERS_ATTACK] for view in _PROTOCOLS]
        accuracies = [_with_interval(one.balanced_accuracy, one.balanced_accuracy_interval) for one in ours]
        precisions = ["–" if one.precision is None else f"{100 * one.precision:.2f}" for one in ours]
        rows.append((f"{int(total):,}, ours", *accuracies, *precisions))
    headings = [f"{what} {protocol}" for what in ("accuracy", "precision") for protocol in _PROTOCOLS.values()]
    return markdown.table(("examples", *headings), rows)


def _table(
    views: Mapping[str, str], found: Mapping[str, Mapping[str, InferenceSummary]], accuracy: Mapping[str, float]
) -> str:
    chosen = strongest(dict(found[CLIENT]))
    rows = []
    for view, name in views.items():
        best = found[view][chosen]
        rows.append(
            (
                name,
                *(_with_interval(one.auc, one.auc_interval, scale=1) for one in found[view].values()),
                *(f"{part.share:.1%} ({part.interval[0]:.1%} to {part.interval[1]:.1%})" for part in best.found),
                f"{accuracy[view]:.1%}" if view in accuracy else "",
            )
        )
    low = found[CLIENT][chosen].found
    alarms = [f"{ATTACKS[chosen]}: TPR at {part.rate:.1%} FPR ({part.false_alarms} of {part.others:,})" for part in low]
    headings = ("seen", *(f"AUC {name}" for name in ATTACKS.values()), *alarms, "model's accuracy")
    return markdown.table(headings, rows)


def _budget_table(views: Mapping[str, str], trials: Mapping[str, Sequence[PassiveTrial]]) -> str:
    budgets = {total: summarise_budget(some) for total, some in trials.items()}
    sizes = [size for size, _ in next(iter(next(iter(next(iter(budgets.values())).values())).values()))]
    rows = [
        (f"{int(total):,}, {views[view]}, {ATTACKS[attack]}", *(f"{area:.3f}" for _, area in curve))
        for total, seen in budgets.items()
        for view, attacks in seen.items()
        for attack, curve in attacks.items()
    ]
    return markdown.table(("examples, seen, attack", *map(str, sizes)), rows)


def _percent(interval: tuple[float, float]) -> str:
    low, high = interval
    return f"{low:.1%} to {high:.1%}" if np.isfinite(low) else "unknown: one trial has no interval"


def _with_interval(value: float, interval: tuple[float, float] | None, scale: float = 100) -> str:
    digits = 2 if scale > 1 else 3
    reach = "" if interval is None else f" ± {scale * (interval[1] - value):.{digits}f}"
    return f"{scale * value:.{digits}f}{reach}"


def _draw(
    views: Mapping[str, str], summaries: Mapping[str, Mapping[str, Mapping[str, InferenceSummary]]], path: Path
) -> None:
    places = np.arange(len(views))
    panels = [f"{int(total):,} examples" for total in summaries]
    with page(
        path,
        "Was it trained on?",
        "AUC of two attacks on everything that is seen; 0.5 is guessing. Whiskers are 95% intervals over trials.",
        panels,
        (4.2 + 4.6 * len(panels), 5.4),
        margin=2.6,
        legend=True,
    ) as axes:
        for number, (one, found) in enumerate(zip(axes, summaries.values(), strict=True)):
            for shift, (attack, color) in zip((-0.12, 0.12), (("lira", BLUE), ("rmia", OCHRE)), strict=True):
                shown = [found[view][attack] for view in views]
                reach = [0.0 if some.auc_interval is None else some.auc_interval[1] - some.auc for some in shown]
                values = [some.auc for some in shown]
                one.errorbar(values, places + shift, xerr=reach, fmt="o", color=color, label=ATTACKS[attack])
            one.axvline(GUESSING, color=QUIET, linewidth=1, linestyle="--")
            one.set(xlim=(0.3, 1.0), xlabel="AUC", ylim=(len(views) - 0.5, -0.5))
            one.set_yticks(places, list(views.values()) if not number else [""] * len(views))
            one.grid(visible=False)
        foot_legend(axes[0])
