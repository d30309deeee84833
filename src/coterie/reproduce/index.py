"""The index of all results: every table, figure and theorem of the papers, where it is here, its size and its verdict.

``contents.toml`` lists what the papers have. Sizes and verdicts are read from the committed ``results.json`` of the
reports, so the index always agrees with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from coterie.errors import ConfigError
from coterie.reports.findings import Judgement
from coterie.reports.markdown import table
from coterie.reports.words import count
from coterie.reproduce.declarations import declared, read_declaration
from coterie.reproduce.runner import REPORT, RESULTS, Results, Run
from coterie.reproduce.verdicts import RATE, benjamini_hochberg, holm

INDEX = "README.md"
_NOTE = "<!-- numbers: constant -->"  # a test compares the index with the results, so no command need be named
_INTRODUCTION = (
    "Each folder is what `coterie reproduce` wrote: a report with the command and the seed in its first line, the "
    "paper's claims and our own checks, each with our statistic and a verdict, our numbers beside the published ones, "
    "the figures, and every number in `results.json`. `coterie reproduce --list` shows all experiments and their "
    "sizes. Where the papers are wrong is in [errata](../errata.md); what each way of training reveals is in "
    "[methods](../methods.md). This page is written by `coterie reproduce --all --report --out docs/results`, which "
    "rewrites every report from its `results.json` and runs no experiment."
)
_RULES = (
    "A run with fewer rounds, examples or participants than the paper's, or with other data or another model, judges "
    "no claim of the paper, neither for it nor against it. Our own checks are judged at the size that was run.",
    "A claim *holds* or *does not hold* if a statistic says so with a p-value of at most {rate:.0%}; it *holds by "
    "construction* if it follows from the construction itself, so that a statistic could only find a bug in the code. "
    "Fewer than three trials decide nothing, nor do trials without any spread.",
    "The claims of a report are corrected together by the method of Benjamini and Hochberg at {rate:.0%}: at most "
    "this share of the verdicts of a report is expected to be wrong.",
    "A claim that something makes no difference has a margin, stated in the declaration: an AUC of at most 0.55 counts "
    "as learning nothing.",
    "The notes of a report say how settings were chosen, and whether results were looked at before the last trial, if "
    "that is known. A report without such a note promises nothing about it.",
)


class Item(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table, figure or theorem of a paper."""

    item: str
    says: str
    reports: tuple[str, ...] = ()
    """The folders of the reports about it."""
    claims: tuple[str, ...] = ()
    """Words of the claims about it; without any, all claims of the paper in these reports."""
    shown: str = ""
    """A test that demonstrates it."""
    command: str = ""
    """A command that prints it."""
    document: str = ""
    """A document about it."""
    verdict: str = ""
    """The verdict, where no claim in a report has one."""

    def is_about(self, claim: Mapping[str, Any]) -> bool:
        """Return whether a claim is the paper's, and about this item."""
        named = not self.claims or any(words in claim["claim"] for words in self.claims)
        return claim["source"] == "paper" and named


class Paper(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A paper with all of its items."""

    name: str
    items: tuple[Item, ...]


class Contents(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The contents of all papers."""

    papers: tuple[Paper, ...]


def read_contents() -> tuple[Paper, ...]:
    """Read the contents of the papers."""
    file = resources.files("coterie.reproduce") / "contents.toml"
    return msgspec.toml.decode(file.read_bytes(), type=Contents).papers


def read_results(folder: Path) -> dict[str, Results]:
    """Read the results of all reports in a folder, by the name of the report."""
    files = sorted(folder.glob(f"*/{RESULTS}"))
    if not files:
        raise ConfigError(f"there are no results in {folder}: expected {folder / 'NAME' / RESULTS}")
    return {file.parent.name: Results.read(file) for file in files}


def rewrite_all(folder: Path) -> Iterator[str]:
    """Write all reports in a folder again, then the index; yield the name of each.

    Reports of experiments that do not exist any more, and reports whose results lack data that the current code shows,
    are not changed, and are named in the error at the end.
    """
    failed, known = [], declared()
    for name, stored in read_results(folder).items():
        if stored.experiment not in known:
            failed.append(f"{name} (there is no experiment {stored.experiment!r})")
            continue
        declaration = read_declaration(known[stored.experiment])
        try:
            run = Run(stored.experiment, declaration, folder / name, stored.size, stored.trials, stored.seed)
            run.rewrite_report()
        except ConfigError as error:
            failed.append(f"{name} ({error}; run {stored.command})")
        else:
            yield name
    (folder / INDEX).write_text(write_index(read_results(folder)), encoding="utf-8")
    yield INDEX
    if failed:
        raise ConfigError(f"not written again: {', '.join(failed)}")


def write_index(results: Mapping[str, Results]) -> str:
    """Return the index as Markdown."""
    parts = [
        "# The papers' results, reproduced",
        _INTRODUCTION,
        "## How claims are judged",
    ]
    parts += ["\n".join([_NOTE, *(f"- {rule.format(rate=RATE)}" for rule in _RULES)]), _count(results)]
    for paper in read_contents():
        parts += [f"## {paper.name}", _paper(paper, results)]
    parts += ["## Reports", _reports(results)]
    if missing := _not_run(results):
        parts += ["## Declared, and not reported yet", missing]
    parts.append(
        "Data sets other than scikit-learn's digits are read from the folder that `COTERIE_DATA` or `--data-dir` "
        "names; nothing is downloaded."
    )
    return "\n\n".join(parts) + "\n"


def all_claims(results: Mapping[str, Results]) -> list[dict[str, Any]]:
    """Return the claims of all reports."""
    return [claim for one in results.values() for claim in one.results.get("claims", ())]


def _count(results: Mapping[str, Results]) -> str:
    """Return the number of claims with each verdict, and how many verdicts survive a correction over all reports."""
    claims = all_claims(results)
    rows = [
        (str(verdict), *(str(sum(_is(claim, verdict, source) for claim in claims)) for source in ("paper", "ours")))
        for verdict in Judgement
    ]
    tested = [claim["p"] for claim in claims if "p" in claim]
    decided = [claim["p"] for claim in claims if "p" in claim and claim["judgement"] != Judgement.OPEN]
    spared, strict = (sum(p <= rule(tested) for p in decided) for rule in (benjamini_hochberg, holm))
    shown = table(("verdict", "claims of the papers", "our checks"), rows)
    return (
        f"{_NOTE}\n{shown}\n\n{_NOTE}\n{len(decided)} of {len(tested)} tested claims are decided by a p-value. Over "
        f"all reports together, {spared} of these verdicts survive the correction of Benjamini and Hochberg at "
        f"{RATE:.0%}, and {strict} that of Holm, which bounds the probability of even one wrong verdict."
    )


def _is(claim: Mapping[str, Any], verdict: Judgement, source: str) -> bool:
    return bool(claim["judgement"] == verdict and claim["source"] == source)


def _paper(paper: Paper, results: Mapping[str, Results]) -> str:
    rows = [(one.item, one.says, _where(one), _size(one, results), _verdict(one, results)) for one in paper.items]
    return f"{_NOTE}\n" + table(("in the paper", "what it says", "here", "size", "verdict"), rows)


def _where(item: Item) -> str:
    places = [f"[{name}]({name}/{REPORT})" for name in item.reports]
    places += [f"`{item.command}`"] if item.command else []
    places += [f"[{Path(item.document).stem}]({item.document})"] if item.document else []
    places += [f"`{item.shown.split('::')[-1]}`"] if item.shown else []
    return ", ".join(places) or "nowhere"


def _size(item: Item, results: Mapping[str, Results]) -> str:
    stored = [results[name] for name in item.reports if name in results]
    found = [f"{one.size}, {count(one.trials, 'trial')}" for one in stored]
    return "; ".join(dict.fromkeys(found))


def _verdict(item: Item, results: Mapping[str, Results]) -> str:
    """Count the verdicts on the claims about an item, after its stated verdict."""
    claims = all_claims({name: results[name] for name in item.reports if name in results})
    return "; ".join(filter(None, (item.verdict, _tally([claim for claim in claims if item.is_about(claim)]))))


def _short(verdict: Judgement) -> str:
    shown = {Judgement.FAILS: "fail", Judgement.HOLDS: "hold", Judgement.BY_CONSTRUCTION: "hold by construction"}
    return shown.get(verdict, "cannot be judged")


def _reports(results: Mapping[str, Results]) -> str:
    rows = []
    for name, one in results.items():
        claims = one.results.get("claims", ())
        cells = [_tally([claim for claim in claims if claim["source"] == source]) for source in ("paper", "ours")]
        rows.append((f"[{name}]({name}/{REPORT})", one.title, one.size, f"{one.trials:,}", *cells))
    headings = ("report", "what it is about", "size", "trials", "the paper's claims", "our checks")
    return f"{_NOTE}\n" + table(headings, rows)


def _not_run(results: Mapping[str, Results]) -> str:
    """List the declared experiments that have no report."""
    known = {one.experiment for one in results.values()}
    missing = {name: read_declaration(file) for name, file in sorted(declared().items()) if name not in known}
    rows = [(f"`coterie reproduce {name}`", one.title, one.paper) for name, one in missing.items()]
    return f"{_NOTE}\n" + table(("command", "what it is about", "paper"), rows) if rows else ""


def _tally(claims: Sequence[Mapping[str, Any]]) -> str:
    counts = Counter(claim["judgement"] for claim in claims)
    return ", ".join(f"{counts[verdict]} {_short(verdict)}" for verdict in Judgement if counts[verdict])
