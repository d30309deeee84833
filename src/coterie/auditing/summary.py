"""The page of ``coterie audit --summary``: the findings in plain words, for readers who do not know the field.

It fits on one sheet of paper (A4 or letter) for any log: lists are cut, and names are shortened. The page of ``--html``
has the details.
"""

from collections.abc import Mapping
from typing import Any

from coterie.auditing.answers import Answers
from coterie.auditing.findings import AuditReport
from coterie.auditing.logs import Participation
from coterie.auditing.plain_answers import plain_answers
from coterie.auditing.preview import evidence_words, gather_evidence
from coterie.auditing.verdict import Requirement, judge_what_was_read
from coterie.reports.html import render
from coterie.reports.words import Level, count, printable

_NAMED = 6  # exposed clients that are named
_NAME = 28  # characters of a name
_EVIDENCE = 300  # characters of the options, which are needed to repeat the audit: three lines

_HEADLINES = {
    Level.DANGER: "The server can compute what single participants contributed",
    Level.CAUTION: "Nobody is exposed yet, but some participants are no longer hidden in a group",
    Level.SAFE: "Nobody can be singled out by adding and subtracting totals",
    Level.NOTHING: "There is nothing to judge",
}

_MEANINGS = {
    Level.DANGER: "In each round the server only saw a total over many participants. But totals of different rounds "
    "can be added and subtracted, and here this gives the exact contribution of single participants. A contribution "
    "can reveal what is in that participant’s data.",
    Level.CAUTION: "In each round the server only saw a total over many participants. So far, adding and subtracting "
    "totals gives no contribution of a single participant. But some participants have a pattern of participation that "
    "nobody else has. If rounds go on like this, they may be exposed.",
    Level.SAFE: "In each round the server only saw a total over many participants. Whatever totals it adds or "
    "subtracts, each participant stays hidden in a group that always took part together. What the group's total itself "
    "says about its members is not bounded.",
    Level.NOTHING: "The log has no round in which contributions were added up.",
}

_ACTIONS = {
    Level.DANGER: (
        "Treat the contributions of the participants named here as known to the operator of the server, and inform "
        "those who must know.",
        "Stop forming rounds from arbitrary participants. From now on add up fixed circles of participants, each as a "
        "whole or not at all.",
        "Let a ledger refuse every round that would split a circle, and repeat this audit regularly.",
    ),
    Level.CAUTION: (
        "Change how rounds are formed before somebody is exposed: add up fixed circles of participants, each as a "
        "whole or not at all.",
        "Let a ledger refuse every round that would split a circle, and repeat this audit regularly.",
    ),
    Level.SAFE: (
        "Keep it so: one round that splits a group ends the guarantee, and it cannot be restored.",
        "Let a ledger refuse such rounds, and repeat this audit regularly.",
    ),
    Level.NOTHING: ("Check that this is the right log.",),
}


def summary_page(
    report: AuditReport,
    participation: Participation,
    source: str,
    requirement: Requirement | None,
    answers: Answers,
    options: Mapping[str, Any],
) -> str:
    """Return a page without scripts on ``report``, the audit of ``participation`` from ``source``."""
    level = judge_what_was_read(report).level
    named = [(printable(found.client, _NAME), printable(found.round, _NAME)) for found in report.exposed[:_NAMED]]
    exposed, total = len(report.exposed), len(report.clients)
    headline, shown = _HEADLINES[level], level
    if not report.complete:
        headline = "The audit was interrupted: these findings are incomplete"
    elif not report.exposed and not answers.holds(1):
        headline, shown = (
            "The server alone can single nobody out, but with colluding participants it may",
            Level.CAUTION,
        )
    elif report.unread and level is Level.SAFE:
        headline, shown = (
            "A part of the log could not be read. Nobody can be singled out by adding and subtracting totals of the "
            "rest",
            Level.CAUTION,
        )
    return render(
        "coterie.auditing",
        "summary.html.j2",
        {},
        level=shown,
        headline=headline,
        meaning=_MEANINGS[level],
        actions=_ACTIONS[level],
        facts=_facts(report),
        exposed=named,
        more=f"{exposed - len(named):,}" if exposed > len(named) else "",
        of=f"{exposed:,} of {count(total, 'participant')}",
        unread=count(participation.unread, "line") if participation.unread else "",
        requirement=requirement and requirement.words(report).replace("strong T", "T"),
        answers=plain_answers(answers),
        evidence=[
            (name, printable(words, _EVIDENCE))
            for name, words in evidence_words(gather_evidence(participation, source, options))
        ],
    )


def _facts(report: AuditReport) -> list[tuple[str, str]]:
    """Return the most important numbers, each with its meaning."""
    strong = report.strong_privacy
    hidden = "–" if strong is None else f"{strong:,}"
    return [
        (f"{len(report.clients):,}", "participants in the log"),
        (f"{len(report.rounds):,}", "rounds in the log"),
        (f"{len(report.exposed):,}", "participants whose contribution can be computed"),
        (hidden, "participants in the smallest group that totals never separate (T)"),
    ]
