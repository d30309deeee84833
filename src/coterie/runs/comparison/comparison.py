"""A comparison: which runs and baselines are comparable, and how they compare, as findings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from coterie.errors import ConfigError, InputError
from coterie.reports.charts import (
    SERIES,
    Figure,
    Trace,
    draw_labelled,
    draw_line,
    hover_score,
    make_layout,
    text,
    whole_ticks,
)
from coterie.reports.findings import Findings, Plot, Table
from coterie.reports.notebook import Chart, Curve, notebook_html
from coterie.reports.text import findings_text
from coterie.reports.words import count, duration, printable, size
from coterie.runs.comparison.baselines import Baseline, read_baseline
from coterie.runs.comparison.entries import Entry, read_run
from coterie.runs.comparison.scores import SCORES, Score
from coterie.runs.storage.folder import RunFolder

_MOST = 100  # runs and baselines
_HEIGHT = 400  # pixels of a figure


class InFolder(Protocol):
    """Whatever has a run's folder, such as the result of ``coterie.train``."""

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        ...


Source: TypeAlias = "str | PathLike[str] | InFolder"
"""A run, by its folder or its result, or a baseline, by its CSV file."""


@dataclass(frozen=True)
class Group:
    """Runs and baselines with the same score on the same test examples, as far as their files say."""

    score: Score
    data: str
    """The name of the data."""
    entries: tuple[Entry, ...]
    """The runs in the order in which they were given, then the baselines."""

    @property
    def by_owners(self) -> bool:
        """Whether the entries are compared by each client's own test examples, not by those of everybody.

        They are if clients of some run have models of their own, and scores on both kinds of examples are known.
        """
        known = [entry for entry in self.entries if entry.owners_score is not None]
        return any(entry.personal for entry in known) and not all(entry.judged_by_owners for entry in known)

    @property
    def title(self) -> str:
        """The score and the data, in a few words."""
        name = self.score.name
        return f"{name[0].upper()}{name[1:]}{f' on {self.data}' if self.data else ''}"

    @property
    def curves(self) -> list[Curve]:
        """The lines of a chart, each with a colour of its own; after eight the colours repeat."""
        return [
            Curve(entry.name, entry.points, SERIES[place % len(SERIES)], dashed=entry.summary is None)
            for place, entry in enumerate(self.entries)
        ]


@dataclass(frozen=True)
class Comparison:
    """Runs and baselines beside each other, in groups whose scores can be compared."""

    groups: tuple[Group, ...]
    target: float | None = None
    """The score whose first round is searched for."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The runs and the baselines; a baseline that fits several groups occurs in each."""
        return tuple(entry for group in self.groups for entry in group.entries)

    @cached_property
    def findings(self) -> Findings:
        """The comparison as findings, for a terminal, a page or a notebook."""
        return Findings(
            headlines=[headline for group in self.groups for headline in _headlines(group)],
            about=self._about,
            tables=[self._tabulate(group) for group in self.groups],
            plots=[Plot(group.title, _draw(group), _caption(group)) for group in self.groups],
            remarks=self._remarks(),
            numbers=self.as_dict(),
        )

    @property
    def _about(self) -> str:
        runs = {entry.name for entry in self.entries if entry.summary}
        baselines = {entry.name for entry in self.entries if entry.summary is None}
        said = count(len(runs), "run") if runs else ""
        said += " and " if runs and baselines else ""
        said += count(len(baselines), "baseline") if baselines else ""
        if len(self.groups) == 1:
            tests = "each client's own test examples" if self.groups[0].by_owners else "the test examples"
            return f"{said}, compared by {self.groups[0].score.name} on {tests}."
        scores = {group.score.column for group in self.groups}
        reason = "by different metrics" if len(scores) > 1 else "on different data"
        return (
            f"{said} in {len(self.groups)} groups, because scores were measured {reason}. Compare scores within a "
            "group only."
        )

    def _tabulate(self, group: Group) -> Table:
        target = self.target
        score = group.score
        reach = f"rounds to {score.write(target)}" if target is not None else "rounds to target"
        table = Table.of(
            group.title if len(self.groups) > 1 else "",
            group.entries,
            [
                ("", lambda entry: printable(entry.name, 40)),
                ("algorithm", lambda entry: entry.algorithm),
                ("rounds", _write_rounds),
                (f"{score.name} on clients' data", lambda entry: _write_owners_score(group, entry)),
                (f"final {score.name}", lambda entry: _write(score, entry.final)),
                (f"best {score.name}", lambda entry: _write(score, entry.best)),
                (reach, lambda entry: "" if target is None else _write_reached(entry, target)),
                ("T promised", _write_promised),
                ("T held", _write_held),
                ("epsilon", _write_epsilon),
                ("time", lambda entry: duration(entry.summary.seconds) if entry.summary else ""),
                ("traffic", lambda entry: size(entry.total_bytes) if entry.total_bytes else ""),
            ],
        )
        return table.without_empty_columns()

    def _remarks(self) -> list[str]:
        runs = [entry for entry in self.entries if entry.summary]
        said = []
        if any(entry.summary and entry.summary.promised > 1 for entry in runs):
            said.append(
                "T promised: every combination of the sums of any number of rounds is about groups of at least T "
                "clients. T held: the size of the smallest group that the sums of the rounds played so far do not "
                "separate."
            )
        if deltas := {entry.summary.config.noise.delta for entry in runs if entry.summary and entry.summary.epsilon}:
            deltas_shown = " or ".join(f"{delta:g}" for delta in sorted(deltas))
            said.append(
                f"epsilon: the differential privacy of a client over all rounds played, at delta {deltas_shown}."
            )
        if any(entry.total_bytes for entry in runs):
            said.append("traffic: what all clients sent and received in all rounds, the model itself not counted.")
        said += [remark for group in self.groups for remark in _remark_on_models(group)]
        if unfinished := [printable(entry.name) for entry in runs if entry.summary and not entry.summary.finished]:
            said.append(f"Not finished: {', '.join(unfinished)}.")
        if silent := [printable(entry.name) for entry in runs if not entry.points]:
            said.append(f"No score was recorded for {', '.join(silent)}: no test examples, no round, or withheld.")
        if any(entry.summary is None for entry in self.entries):
            said.append("The data that a baseline was measured on is not in its file: check that it is the same.")
        if len(runs) > 1:
            said.append(
                "Each run is one draw of random numbers: repeat runs with other seeds before you rely on a small gap."
            )
        return said

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        groups = [
            {
                "metric": group.score.column,
                "larger_is_better": group.score.larger,
                "data": group.data or None,
                "runs": [entry.as_dict(self.target) for entry in group.entries],
            }
            for group in self.groups
        ]
        return {"target": self.target, "groups": groups}

    def page(self) -> str:
        """Return the comparison as one self-contained HTML page."""
        from coterie.reports.html import findings_page

        return findings_page("Comparison of runs", "Comparison", (), self.findings)

    def _repr_html_(self) -> str:
        return notebook_html(self.findings, [_chart(group) for group in self.groups])

    def __str__(self) -> str:
        return findings_text(self.findings)

    def __repr__(self) -> str:
        entries = ", ".join(f"{printable(entry.name)} {_write(entry.score, entry.final)}" for entry in self.entries)
        return f"Comparison({entries})"


def compare(
    sources: "Source | Sequence[Source] | Mapping[str, Source]",
    *,
    metric: str | None = None,
    target: float | None = None,
    same_data: bool = False,
) -> Comparison:
    """Compare runs with each other and with baselines.

    Args:
        sources: one or several: folders of runs, results of ``train``, folders with several runs in them, and CSV files
            of baselines with the columns round and score. A mapping gives each of them a name.
        metric: the column of the records to compare: accuracy, test_loss, error, or one of ``training.metrics``. By
            default accuracy, and the test loss of runs without labels.
        target: also find the first round with this score, a share such as 0.9 for an accuracy.
        same_data: compare runs although their folders do not show that their data is the same.

    Runs whose metric or data differ are in groups of their own. The files are not checked, not even T: audit ledgers
    for that.

    """
    if target is not None and not (isinstance(target, Real) and abs(float(target)) < float("inf")):
        raise ConfigError(f"target is a score such as 0.9, not {target!r}")
    named = _named(sources)
    runs: list[Entry] = []
    baselines: list[tuple[str, Path, Baseline]] = []
    for name, path in named:
        if path.is_dir():
            runs.append(read_run(path, name, metric))
        else:
            baselines.append((name, path, read_baseline(path, metric)))
    wanted = runs[0].score if runs else SCORES.get(metric or "")
    if metric is not None and wanted is None:
        raise ConfigError(f"metric is one of {', '.join(SCORES)}, not {metric!r}")
    groups = _grouped(runs, same_data=same_data)
    for name, path, baseline in baselines:
        groups = _with_baseline(groups, name, path, baseline, wanted if metric else None)
    if target is not None and target > 1 and all(group.score.share for group in groups):
        raise ConfigError(f"target is a share from 0 to 1 for {groups[0].score.name}, such as 0.9, not {target:g}")
    return Comparison(tuple(groups), target)


def _named(sources: "Source | Sequence[Source] | Mapping[str, Source]") -> list[tuple[str, Path]]:
    """Return the paths that were given, with names that tell them apart."""
    if isinstance(sources, str | PathLike):
        sources = [sources]
    if not isinstance(sources, Mapping | Sequence):
        sources = [sources]
    if isinstance(sources, Mapping):
        found = [(str(name), _path_of(source)) for name, source in sources.items()]
    else:
        paths = [path for source in sources for path in _expand(_path_of(source))]
        found = list(zip(_names(paths), paths, strict=True))
    if not found:
        raise ConfigError("there is nothing to compare: give folders of runs, and CSV files of baselines")
    if len(found) > _MOST:
        raise ConfigError(f"at most {_MOST} runs are compared at once, not {len(found):,}")
    return found


def _path_of(source: "Source") -> Path:
    if source == "":
        raise InputError("the path of a source is empty")
    if isinstance(source, str | PathLike):
        path = Path(source)
    else:
        folder = getattr(source, "folder", None)
        if not isinstance(folder, Path):
            raise ConfigError(
                "compare takes folders of runs, results of train and CSV files, not " + type(source).__name__
            )
        path = folder
    if not path.exists():
        raise InputError(f"there is no file or folder {printable(path, 200)}")
    return path


def _expand(path: Path) -> list[Path]:
    """Return the folder of a run or a file as it is; of another folder, the runs in it."""
    if not path.is_dir() or RunFolder(path).config_file.exists():
        return [path]
    try:
        inside = sorted(one for one in path.iterdir() if RunFolder(one).config_file.is_file())
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    if not inside:
        raise InputError(f"{path} is not the folder of a run, and has none in it: no config.toml was found")
    return inside


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the last parts of the paths, as many as tell them apart; the same path twice gets a number."""
    resolved = [path.resolve() for path in paths]
    most = max((len(path.parts) for path in resolved), default=0)
    for parts in range(1, most + 1):
        names = ["/".join(path.parts[-parts:]) for path in resolved]
        if len(set(names)) == len(set(resolved)):
            break
    else:
        names = [str(path) for path in resolved]
    return [
        name if names.index(name) == at else f"{name} ({names[:at].count(name) + 1})" for at, name in enumerate(names)
    ]


def _grouped(runs: Sequence[Entry], *, same_data: bool) -> list[Group]:
    groups: list[Group] = []
    for run in runs:
        for at, group in enumerate(groups):
            others = [other.data for other in group.entries if other.data]
            alike = run.data is None or all(run.data.same_tests(other) for other in others)
            if group.score == run.score and (same_data or alike):
                groups[at] = replace(group, entries=(*group.entries, run))
                break
        else:
            groups.append(Group(run.score, run.data.title if run.data else "", (run,)))
    return groups


def _with_baseline(
    groups: Sequence[Group], name: str, path: Path, baseline: Baseline, wanted: Score | None
) -> list[Group]:
    """Add a baseline to all groups of its score; a column with another name is taken for the score of the runs."""
    known = {group.score for group in groups} | ({wanted} if wanted else set())
    score = baseline.score
    if score is None and len(known) == 1:
        (score,) = known
    if score is None:
        raise InputError(
            f"{path}: it is not known what its column {printable(baseline.heading)!r} measures; name it after a score: "
            f"{', '.join(SCORES)}"
        )
    entry = Entry(name, score, baseline.points)
    if score not in {group.score for group in groups}:
        return [*groups, Group(score, "", (entry,))]
    return [replace(group, entries=(*group.entries, entry)) if group.score == score else group for group in groups]


def _headlines(group: Group) -> list[str]:
    if not group.by_owners:
        return [_headline(group.title, group.score, [(entry, entry.final) for entry in group.entries])]
    common = [(entry, entry.final) for entry in group.entries if not entry.judged_by_owners]
    return [
        _headline(
            f"{group.title}, each client's own test examples",
            group.score,
            [(entry, entry.owners_score) for entry in group.entries],
        ),
        _headline(f"{group.title}, the test examples of everybody", group.score, common),
    ]


def _headline(title: str, score: Score, scores: Sequence[tuple[Entry, float | None]]) -> str:
    ranked = sorted(
        ((entry, final) for entry, final in scores if final is not None),
        key=lambda pair: pair[1],
        reverse=score.larger,
    )
    if not ranked:
        return f"{title}: no scores yet."
    (leader, final), others = ranked[0], ranked[1:]
    said = f"{title}: {printable(leader.name)} ends with {score.write(final)} after {count(leader.rounds, 'round')}"
    if others and others[0][1] == final:
        return f"{said}, and so does {printable(others[0][0].name)}."
    return f"{said}, the best of {len(ranked)}." if others else f"{said}."


def _remark_on_models(group: Group) -> Iterator[str]:
    """Say whose models and whose test examples the scores of a group are of, if clients have models of their own."""
    personal = [entry for entry in group.entries if entry.personal]
    if not personal:
        return
    if not group.by_owners:
        yield f"The score of {_list_names(personal)} is the mean over the clients' own models."
        return
    name = group.score.name
    yield (
        f"{name} on clients' data: each client's model on the client's own test examples, on average over the clients. "
        "It is the client's own model where it has one, and the common model elsewhere. Clients without test examples "
        "are scored on the common ones, with labels in the proportions of the client's training examples."
    )
    if owners := [entry for entry in personal if entry.judged_by_owners]:
        yield (
            f"final and best {name} of {_list_names(owners)}: the clients' own models, each on its owner's test "
            "examples; of the other entries: on the test examples of everybody."
        )
    if common := [entry for entry in personal if not entry.judged_by_owners]:
        yield (
            f"final and best {name} of {_list_names(common)}: the mean over the clients' own models on the test "
            "examples of everybody."
        )


def _list_names(entries: Sequence[Entry]) -> str:
    return ", ".join(printable(entry.name) for entry in entries)


def _chart(group: Group) -> Chart:
    return Chart(group.curves, "round", group.score.write, _alt(group))


def _alt(group: Group) -> str:
    ends = ", ".join(f"{printable(entry.name)} {_write(group.score, entry.final)}" for entry in group.entries)
    return f"Line chart: {group.score.name} over the rounds. In the end: {ends}."


def _caption(group: Group) -> str:
    dashed = " Dashed: baselines." if any(entry.summary is None for entry in group.entries) else ""
    better = "Higher" if group.score.larger else "Lower"
    on = "the test examples"
    if group.by_owners:
        owners = [entry for entry in group.entries if entry.judged_by_owners]
        but = f"; that of {_list_names(owners)} on those of each model's owner" if owners else ""
        on = f"the test examples of everybody{but},"
    return f"The {group.score.name} on {on} after each round that was evaluated. {better} is better.{dashed}"


def _draw(group: Group) -> Figure:
    shown = hover_score(share=group.score.share)
    lines: list[Trace] = [
        draw_line(
            curve.name,
            [at for at, _ in curve.points],
            [value for _, value in curve.points],
            mode="lines+markers" if len(curve.points) == 1 else "lines",
            hover=f"{text(curve.name)}<br>round %{{x}}: {shown}",
            color=curve.color,
            width=2.5,
            dash="dash" if curve.dashed else "solid",
        )
        for curve in group.curves
    ]
    values = [value for entry in group.entries for _, value in entry.points] or [0.0]
    room = (max(values) - min(values)) * 0.05 or max(abs(values[0]) * 0.05, 0.01)
    labels = draw_labelled(lines, (min(values) - room, max(values) + room), _HEIGHT)
    ticks = {"tickformat": "~%"} if group.score.share else {}
    rounds = [number for entry in group.entries for number, _ in entry.points] or [1]
    edge = (max(rounds) - min(rounds)) * 0.02 or 0.5
    layout = make_layout(
        "round",
        group.score.name,
        xaxis=whole_ticks(max(rounds)) | {"range": [min(rounds) - edge, max(rounds) + edge]},
        yaxis=labels.pop("yaxis") | ticks,
        legend=False,
        **labels,
    )
    return Figure(lines, layout, _HEIGHT, _alt(group))


def _write(score: Score, value: float | None) -> str:
    return "–" if value is None else score.write(value)


def _write_owners_score(group: Group, entry: Entry) -> str:
    return _write(group.score, entry.owners_score) if group.by_owners else ""


def _write_rounds(entry: Entry) -> str:
    if entry.summary is None or entry.summary.finished:
        return f"{entry.rounds:,}"
    return f"{entry.rounds:,} of {entry.summary.config.rounds:,}"


def _write_reached(entry: Entry, target: float) -> str:
    reached = entry.rounds_to(target)
    return "not reached" if reached is None else f"{reached:,}"


def _write_promised(entry: Entry) -> str:
    if entry.summary is None:
        return ""
    return str(entry.summary.promised) if entry.summary.promised > 1 else "none"


def _write_held(entry: Entry) -> str:
    if entry.summary is None or entry.summary.strong_privacy is None:
        return ""
    exposed = f", {entry.summary.exposed:,} exposed" if entry.summary.exposed else ""
    return f"{entry.summary.strong_privacy}{exposed}"


def _write_epsilon(entry: Entry) -> str:
    epsilon = entry.summary.epsilon if entry.summary else None
    return "" if epsilon is None else f"{epsilon:.3g}"
