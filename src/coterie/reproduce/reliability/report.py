"""The report on :mod:`coterie.reproduce.reliability.experiment`: both rules on the same graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.errors import ConfigError
from coterie.reports import markdown
from coterie.reports.intervals import share_interval
from coterie.reproduce.claims import RARE, Claim, Judgement, judge, write_claims
from coterie.reproduce.declarations import Findings, Record
from coterie.reproduce.reliability.experiment import GraphSetting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coterie.reproduce.declarations import Job
    from coterie.reproduce.reliability.experiment import Reliability

_EXPLANATION = (
    "Each graph is judged twice, with the same clients dropping out of the same steps. *Paper:* Theorem 1 calls the "
    "round unreliable, and nothing is learnt from it. *Ours:* a client with too few holders of its shares leaves, the "
    "others go on, and the session is aborted only if a secret that is needed then cannot be opened. *Saved* are the "
    "sessions that Theorem 1 calls unreliable and that were completed, with so many clients in the sum. Intervals hold "
    "the probability with a confidence of 95% (Clopper and Pearson)."
)


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the graphs of one setting; of the sessions, None where none was played.

    ``saved`` has the number of clients in each sum that Theorem 1 had given up, and ``refused`` counts sessions that
    were aborted though the round was reliable.
    """

    setting: GraphSetting
    graphs: int
    unreliable: int
    aborted: int | None = None
    refused: int | None = None
    saved: tuple[int, ...] | None = None

    @classmethod
    def of(cls, setting: GraphSetting, records: Sequence[Record]) -> Counts:
        """Count the records of a setting."""
        unreliable = [record for record in records if not record["reliable"]]
        if not setting.played:
            return cls(setting=setting, graphs=len(records), unreliable=len(unreliable))
        aborted = [record for record in records if not record["aggregated"]]
        return cls(
            setting=setting,
            graphs=len(records),
            unreliable=len(unreliable),
            aborted=len(aborted),
            refused=sum(record["reliable"] for record in aborted),
            saved=tuple(sorted(record["aggregated"] for record in unreliable if record["aggregated"])),
        )


def make_report(experiment: Reliability, records: Mapping[Job, Record]) -> Findings:
    """Put everything together from the graphs that were judged."""
    found: dict[str, list[Record]] = {}
    for job, record in records.items():
        found.setdefault(job.case, []).append(record)
    return _report(
        experiment,
        [Counts.of(setting, found[setting.name]) for setting in experiment.settings if setting.name in found],
    )


def retell_report(experiment: Reliability, summary: Record) -> Findings:
    """Put everything together from the counts of an earlier report."""
    try:
        return _report(experiment, msgspec.convert(summary["settings"], list[Counts]))
    except (KeyError, msgspec.ValidationError) as error:
        raise ConfigError(f"the results do not hold the counts of each setting: {error}") from None


def _report(experiment: Reliability, counts: Sequence[Counts]) -> Findings:
    claims = [
        Claim(f"{claim.says} ({one.setting.name})", f"{_lost(one.unreliable, one.graphs)} unreliable", _judge(one))
        for claim in experiment.claims
        for one in counts
        if claim.setting == one.setting.name
    ]
    parts = [
        _EXPLANATION,
        "## Both rules on the same graphs",
        _table(counts),
        write_claims(claims),
        "## Notes",
        markdown.bullets(experiment.notes),
    ]
    return Findings(
        headlines=list(_headlines(counts, claims)),
        text="\n\n".join(parts),
        summary={
            "claims": [claim.summary() for claim in claims],
            "settings": [msgspec.to_builtins(one) for one in counts],
        },
        figures={},
    )


def _headlines(counts: Sequence[Counts], claims: Sequence[Claim]) -> Iterator[str]:
    for one in counts:
        if one.saved is not None:
            yield (
                f"{one.setting.name}: of {one.graphs} rounds, Theorem 1 calls {one.unreliable} unreliable; "
                f"{len(one.saved)} of those were completed here{_range(one.saved)}."
            )
    for claim in claims:
        yield claim.headline


def _table(counts: Sequence[Counts]) -> str:
    headings = ("setting", "n", "p", "t", "graphs", "paper: unreliable", "ours: aborted", "saved", "aborted needlessly")
    rows = (
        (
            one.setting.name,
            f"{one.setting.clients:,}",
            f"{one.setting.connection:g}",
            str(one.setting.threshold),
            str(one.graphs),
            _lost(one.unreliable, one.graphs),
            "not played" if one.aborted is None else _lost(one.aborted, one.graphs),
            "" if one.saved is None else f"{len(one.saved)}{_range(one.saved)}",
            "" if one.refused is None else str(one.refused),
        )
        for one in counts
    )
    return markdown.table(headings, rows)


def _judge(one: Counts) -> Judgement:
    return judge(share_interval(one.unreliable, one.graphs), 0.0, RARE)


def _lost(hits: int, tries: int) -> str:
    low, high = share_interval(hits, tries)
    return f"{hits} of {tries} ({low:.1%} to {high:.1%})"


def _range(clients: Sequence[int]) -> str:
    if not clients:
        return ""
    low, high = min(clients), max(clients)
    return f", with {low}{f' to {high}' if high > low else ''} clients"
