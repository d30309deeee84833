"""The words of a run's summary, for the console and the page."""

import math
from collections.abc import Iterator

from coterie.errors import ConfigError
from coterie.planning.session import FEW_CLIENTS, recommend
from coterie.reports.words import Level, count, duration, one_line, size
from coterie.rounds.outcome import Tally
from coterie.runs.algorithms import algorithm_of
from coterie.runs.algorithms.participants import WITHHELD
from coterie.runs.records.client_scores import Basis
from coterie.runs.records.summary import Summary
from coterie.runs.records.yardstick import Yardstick
from coterie.runs.report.observers import MUCH_CLIPPED
from coterie.runs.sections.checks import always_complete
from coterie.runs.sections.collusion import roster_size
from coterie.runs.sections.common import OWN, CommonSettings
from coterie.training.metrics import metric_form

_WORST = 3  # clients that are named


def in_words(summary: Summary) -> Iterator[tuple[str, str]]:
    """Yield sentences on a run, each with its topic."""
    algorithm = algorithm_of(summary.config)
    yield "Model", _model(summary)
    if scores := _scores(summary):
        yield "Scores", scores
    if metrics := _metrics(summary):
        yield "Metrics", metrics
    if summary.yardstick.rules:
        yield "Baselines", _baselines(summary.yardstick)
    if summary.notes:
        yield "Data", f"{'. '.join(summary.notes)}."
    yield "Rounds", _rounds(summary)
    if summary.stopped:
        yield "Stopped", f"{one_line(summary.stopped)}."
    yield from algorithm.words(summary)
    if summary.epsilon is not None:
        yield "Noise", _noise(summary, algorithm.guarantee(summary))
    if algorithm.aggregates:
        yield "Fairness", _fairness(summary)
        yield "Cost", _cost(summary)
    if summary.clipped > MUCH_CLIPPED:
        yield (
            "Clipping",
            f"{summary.clipped:.1%} of the entries of updates were clipped at ±{summary.config.aggregation.clip:g}: "
            "a larger aggregation.clip would lose less.",
        )


def level_of(summary: Summary) -> Level:
    """Return the verdict on the privacy of a run."""
    if not algorithm_of(summary.config).aggregates or summary.strong_privacy is None:
        return Level.NOTHING
    if summary.exposed:
        return Level.DANGER
    return Level.SAFE if summary.safe else Level.CAUTION


def headline_of(summary: Summary) -> str:
    """Return the quality and the privacy of a run in a line."""
    learnt = count(summary.rounds, "round")
    if (score := summary.leading_score) is not None:
        described = summary.yardstick.describe(score)
        whose = " on the owners' data" if summary.owners_score is not None else ""
        learnt = f"{described[0].upper()}{described[1:]}{whose} after {learnt}"
    if level_of(summary) is Level.DANGER:
        return f"{learnt}, and {summary.exposed:,} clients exposed"
    if level_of(summary) is Level.SAFE:
        helped = f", T - c = {summary.promise.honest}" if summary.promise.colluders else ""
        kept = "no client can be singled out by adding and subtracting sums"
        return f"{learnt}, and {kept} (T = {summary.promised}{helped})"
    return learnt


def how_to_continue(config: CommonSettings, folder: str) -> str:
    """Return how to continue a run: a command, or a call of ``train`` if a program passed data or a model."""
    if OWN in (config.data.name, config.model.name, config.cohort.policy):
        return f"coterie.train(..., out={folder!r}, resume=True)"
    return f"coterie resume {folder}"


def _noise(summary: Summary, guarantee: str) -> str:
    """Return epsilon, whom it protects, and the size of the noise that each client adds, in words."""
    noise = summary.config.noise
    said = (
        f"({summary.epsilon:.3g}, {noise.delta:g})-differential privacy {guarantee}; the report lists what that "
        "assumes."
    )
    if noise.epsilon:
        said += (
            f" noise.multiplier = {noise.multiplier:.5g} was solved for noise.epsilon = {noise.epsilon:g} over "
            f"{count(summary.config.rounds, 'round')}."
        )
    if summary.example_epsilon is None or not summary.noise_shares:
        return said
    together = summary.sigma * math.sqrt(summary.noise_shares)
    return (
        f"{said} For one example replaced by another, epsilon is {summary.example_epsilon:.3g}: a whole contribution "
        f"is clipped, so one example can turn it around. Each client adds noise of deviation {summary.sigma:.3g} to an "
        f"entry; the noise of {count(summary.noise_shares, 'honest client')} in each sum is counted, together "
        f"{together:.3g} or {together / noise.clip_norm:.3g} times noise.clip_norm."
    )


def named(name: str, kind: str) -> str:
    """Return the name of data or a model; empty for those that a Python program passes."""
    return f"your {kind}" if name == OWN else name


def _model(summary: Summary) -> str:
    name = summary.config.model.name
    what = f"{'Your model' if name == OWN else f'The {name}'} with {summary.parameters:,} parameters"
    personal = algorithm_of(summary.config).personal
    what += f", one for each of {summary.clients:,} clients," if personal else ""
    tests = _tests(summary)
    yardstick, score, best = summary.yardstick, summary.score, summary.best_score
    if (owners := summary.owners_score) is not None and _judged_twice(summary) and score is not None:
        return (
            f"{what} has {yardstick.describe(owners)} on its owner's test examples, on average. On the test "
            f"examples of everybody it is {yardstick.written(score)}."
        )
    if score is not None and best is not None:
        at_best = f" (at best {yardstick.written(best)})" if best != score else ""
        if yardstick.share:
            mean = ", on average" if summary.owners_score is not None else ""
            return f"{what} classifies {yardstick.written(score)} of {tests} correctly{mean}{at_best}."
        off = f", and is off by {summary.error:,.4g} {yardstick.unit} on average" if summary.error is not None else ""
        scaling = f", of {yardstick.scaling}" if yardstick.scaling else ""
        return f"{what} has {yardstick.describe(score)} on {tests}{at_best}{scaling}{off}."
    if personal and summary.epsilon is not None:
        return f"The score of {what[0].lower()}{what[1:]} {WITHHELD}."
    if summary.finished:
        noise = " for all, and scores on clients' own would show their data without the noise"
        why = f"there are no test examples{noise if summary.epsilon is not None else ''}"
        return f"{what} was not evaluated: {why}."
    return f"{what} was not evaluated yet."


def _judged_twice(summary: Summary) -> bool:
    """Return whether rounds were scored on common test examples, and personal models finally on their client's."""
    return summary.client_scores is not None and summary.client_scores.basis is Basis.PROPORTIONS


def _tests(summary: Summary) -> str:
    """Return which test examples models are scored on after every round."""
    if not algorithm_of(summary.config).personal:
        return "the test examples"
    scores = summary.client_scores
    owned = scores is not None and scores.basis in (Basis.TESTS, Basis.HELD_OUT)
    return "its owner's test examples" if owned else "the test examples on average"


def _scores(summary: Summary) -> str:
    """Return how much the scores of clients differ, and the name of the worst."""
    scores, yardstick = summary.client_scores, summary.yardstick
    ranked = scores.ranked(yardstick) if scores else []
    if scores is None or not ranked:
        return ""
    values = [value for _, value in ranked]
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    spread = f"{100 * deviation:.1f} points" if yardstick.share else f"{deviation:.4g}"
    whose = "the clients' own models" if scores.personal else f"the {scores.model} model"
    sample = f" ({len(scores.rows):,} of {scores.clients:,} clients)" if len(scores.rows) < scores.clients else ""
    worst = ", ".join(f"{client} {yardstick.written(value)}" for client, value in ranked[:_WORST])
    return (
        f"Client by client{sample}, the {yardstick.name} of {whose} is {yardstick.written(mean)} on average, with a "
        f"standard deviation of {spread}; the worst: {worst}. These scores are on {scores.basis.value}. "
        "clients.csv has all of them."
    )


def _metrics(summary: Summary) -> str:
    forms = [metric_form(name) for name in summary.config.training.metrics]
    found = [
        f"{form.title} {form.written(value)}{f' ({form.direction})' if form.user else ''}"
        for form in forms
        if (value := summary.extras.get(form.column)) is not None
    ]
    return f"On the test examples: {', '.join(found)}." if found else ""


def _baselines(yardstick: Yardstick) -> str:
    found = ", ".join(f"{rule} {yardstick.written(value)}" for rule, value in yardstick.rules.items())
    return f"Forecasts that learn nothing and repeat a past value have this {yardstick.name}: {found}."


def _rounds(summary: Summary) -> str:
    parts = [f"{summary.completed:,} of {summary.rounds:,} completed"]
    if summary.skipped:
        parts.append(f"{summary.skipped:,} were skipped, with too few clients")
    if summary.aborted:
        parts.append(f"{summary.aborted:,} were aborted because too many clients dropped out")
    if summary.selected > summary.aggregated:
        tally = Tally(summary.aggregated, summary.dropped, summary.stranded, summary.unused)
        parts.append(f"of the clients selected, counted in each round, {tally}")
    text = "; ".join(parts) + "."
    return text if summary.finished else f"{text} {summary.config.rounds - summary.rounds:,} are still to be played."


def _fairness(summary: Summary) -> str:
    never = f"; {summary.never:,} never took part" if summary.never else "; all took part"
    return (
        f"{summary.cardinality:.1f} clients a round on average (C); the most and the least frequent client are "
        f"{summary.fairness_gap:.1%} of the rounds apart (F){never}."
    )


def _cost(summary: Summary) -> str:
    rest = summary.seconds - summary.train_seconds - summary.protect_seconds
    share = summary.protect_seconds / summary.seconds if summary.seconds else 0.0
    return (
        f"{size(summary.upload_bytes)} up and {size(summary.download_bytes)} down for a client in a round, the model "
        f"itself not counted. Of {duration(summary.seconds)} in all, {duration(summary.train_seconds)} went into "
        f"training, {duration(summary.protect_seconds)} ({share:.0%}) into protection, {duration(rest)} into "
        f"evaluation and storage.{_sparser(summary)}"
    )


def _sparser(summary: Summary) -> str:
    """Return what a sparse graph would save if the complete one is large; empty against a malicious server."""
    aggregation, cohort = summary.config.aggregation, summary.config.cohort.size
    secure = aggregation.kind == "secure" and aggregation.threat == "honest-but-curious"
    if not secure or not always_complete(aggregation) or aggregation.threshold or cohort <= FEW_CLIENTS:
        return ""
    try:
        plan = recommend(
            cohort,
            aggregation.dropout,
            privacy=min(summary.promise.circle, cohort),
            collusion=max(0.0, aggregation.collusion),
            roster=roster_size(aggregation, summary.config.clients.count, cohort),
            length=max(1, summary.parameters),
        )
    except ConfigError:
        return ""
    if plan.guarantee.degree >= cohort - 1:
        return ""
    saved = plan.complete.client_upload_bytes - plan.costs.client_upload_bytes
    return (
        f" With aggregation.topology = auto, a client would share its secrets with {plan.guarantee.degree:.3g} others "
        f"instead of {cohort - 1}, and send {size(saved)} less in a round."
    )
