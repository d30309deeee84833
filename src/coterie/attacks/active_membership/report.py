"""The report on active membership inference: what attackers infer, and the utility of honest models."""

from collections.abc import Iterable, Iterator, Mapping

from coterie.attacks.active_membership.measure import ActiveMembership, AttackResults
from coterie.attacks.active_membership.methods import CHECKED, NAMES, PUBLIC, MethodName
from coterie.attacks.active_membership.statistics import GUESS, InferenceSuccess, MethodSummary
from coterie.attacks.active_membership.tasks import InferenceTask
from coterie.reports.charts import Figure, Trace, draw_line, make_layout, reference_line, text
from coterie.reports.findings import CardLine, Effect, Findings, Plot, Table
from coterie.reports.intervals import mean_and_spread, mean_interval
from coterie.reports.words import Level, count

_CONFINED: tuple[MethodName, ...] = ("confined", "confined-checked", "confined-anchored")
_STANDS_STILL = 0.9  # the share of refused steps from which on participants learn nothing
_NOTABLE = 0.05
_COLORS: Mapping[MethodName, str] = {
    "fedavg": "@danger",
    "ditto": "@muted",
    "confined": "@accent",
    "confined-checked": "@safe",
    "confined-anchored": "@caution",
}
_PLAIN = {"showgrid": False}


def report(attack: ActiveMembership, measured: AttackResults) -> Findings:
    """Report on all trials of all methods."""
    task, nothing = measured.task, InferenceSuccess(measured.nothing)
    score = task.score_name.capitalize()
    summaries = {method: MethodSummary(method, trials) for method, trials in measured.trials.items()}
    found = list(summaries.values())
    card = [_card_line(summary, summaries["fedavg"]) for summary in found]
    confined = [line.outcome for method, line in zip(summaries, card, strict=True) if method in _CONFINED]
    return Findings(
        level=_level(confined, works=summaries["fedavg"].best.success.beats_guess),
        headlines=[_headline(summaries, task)],
        about=_about(attack, measured),
        numbers={
            "strength": measured.strength,
            "tuning": {str(tried): accuracy for tried, accuracy in measured.tuning.items()},
            "no_information": nothing.measures(),
            "methods": {method: summary.measures() for method, summary in summaries.items()},
            "secure_sum_error": measured.secure_error,
        },
        tables=[
            inference_table("How well attackers infer membership", nothing, found, note=_INFERRED.format(task.rule)),
            utility_table("Utility of honest participants' models", found, note=_LEFT.format(score)),
        ],
        card=card,
        plots=[
            Plot("AUC of the attack in each round", areas(summaries), _AREAS),
            Plot(
                "Utility of honest participants' models",
                utilities(summaries, task.score_name),
                _UTILITIES.format(score),
            ),
        ],
        remarks=list(_remarks(attack)),
    )


def outcome_against(summary: MethodSummary, baseline: MethodSummary) -> Effect:
    """Return the effect of a method on the attack, compared with the baseline under the same attack.

    Never *eliminated*: no theorem says that confined descent hides members. *Not shown* if the attack works on neither.
    """
    own, other = summary.best.success, baseline.best.success
    if not own.beats_guess:
        return Effect.REDUCED if other.beats_guess else Effect.NOT_SHOWN
    _, high = mean_interval([one - reference for one, reference in zip(own.aucs, other.aucs, strict=True)])
    return Effect.REDUCED if high < 0 else Effect.NOT_ELIMINATED


def _level(confined: Iterable[Effect], *, works: bool) -> Level:
    if Effect.NOT_ELIMINATED in confined:
        return Level.DANGER
    return Level.CAUTION if works else Level.NOTHING


def _headline(summaries: Mapping[MethodName, MethodSummary], task: InferenceTask) -> str:
    won = summaries["fedavg"].best.success
    confined = [summaries[method] for method in _CONFINED]
    leaks = [summary.best for summary in confined if summary.best.success.beats_guess]
    if not won.beats_guess and not leaks:
        return "The attack is no better than guessing on FedAvg here, so it says nothing about any defence."
    often = f"{won.auc:.0%} of the time" if won.beats_guess else "no more often than by guessing"
    against = "no more often than by guessing"
    if leaks:
        best = max(leaks, key=lambda one: one.success.auc)
        against = f"{best.success.auc:.0%} at best ({best.doing}, from the {best.view})"
    said = (
        f"Attackers rank members above others {often} with FedAvg, and {against} with confined descent; guessing gets "
        "50%."
    )
    lost = confined[0].passive.utility.mean - confined[0].active.utility.mean
    if lost > _NOTABLE:
        said += (
            f" Without a loss check, confined models lose {100 * lost:.0f} points of {task.score_name} to the attack."
        )
    if all(summary.active.refused > _STANDS_STILL for summary in confined[1:]):
        said += " With one, participants refuse the poisoned steps, and training stops."
    return said


def _about(attack: ActiveMembership, measured: AttackResults) -> str:
    task, strength, tuning = measured.task, measured.strength, measured.tuning
    tried = ", ".join(f"{one:g}: {accuracy:.0%}" for one, accuracy in tuning.items())
    chosen = f"strength {strength:g}" + (f" (the best on FedAvg in a separate trial; {tried})" if tuning else "")
    before = (
        "Before the attack, attackers train on their targets, non-members included, as in the code of the paper."
        if attack.train_on_targets
        else "Before the attack, attackers train on examples of their own."
    )
    return (
        f"{attack.data}: {count(attack.participants, 'honest participant')} and {attack.malicious} malicious, "
        f"{attack.examples} examples and, for each attacker, {attack.examples // 2 * 2} targets, half of them "
        f"members. Network with one hidden layer of 256, full batches, steps of {attack.step:g} along the mean of all "
        f"gradients, random starts with a standard deviation of {attack.spread:g}. {before} Once their models "
        f"{task.threshold_phrase.format(f'{attack.threshold:.0%}')}, or after {attack.patience} rounds, they attack "
        f"for {attack.rounds} rounds with {chosen}, towards {task.decoy_words}. These settings are the same for every "
        "method. Sums are computed in the clear, because the attack uses nothing but sums; one was also computed in a "
        f"real session of secure aggregation, and differs by {measured.secure_error:.0e} of its largest entry. "
        f"{count(attack.trials, 'trial')}."
    )


def inference_table(
    title: str,
    guess: InferenceSuccess,
    summaries: Iterable[MethodSummary],
    printed: Mapping[str, str] | None = None,
    note: str = "",
) -> Table:
    """Return how well attackers infer members from each model they see; ``printed`` is what a paper has, by method."""
    rows = [("a model that saw no target", "", "", _percent(guess), _interval(guess), "", f"{guess.auc:.3f}")]
    for summary in summaries:
        paper = (printed or {}).get(summary.method, "")
        for view, success in summary.active.views.items():
            watched = summary.passive.views[view]
            by_rule = paper, _percent(watched), _percent(success), _interval(success)
            rows.append((f"{NAMES[summary.method]}: {view}", *by_rule, f"{watched.auc:.3f}", _area(success)))
            paper = ""
    columns = (
        *("from", "paper, %", "right, watching, %", "right, attacking, %", "interval, %"),
        *("AUC, watching", "AUC, attacking"),
    )
    return Table(title, columns, rows, note).without_empty_columns()


def utility_table(
    title: str,
    summaries: Iterable[MethodSummary],
    printed: Mapping[str, str] | None = None,
    printed_spread: Mapping[str, str] | None = None,
    note: str = "",
) -> Table:
    """Return the utility of honest participants' models and the steps that they refuse, beside what a paper has."""
    rows = []
    for summary in summaries:
        attacked = summary.active.utility
        checks = summary.refused_before, summary.passive.refused, summary.active.refused
        rows.append(
            (
                NAMES[summary.method],
                f"{summary.began:.0f}",
                f"{100 * summary.before.mean:.1f}",
                f"{100 * summary.passive.utility.mean:.1f}",
                (printed or {}).get(summary.method, ""),
                f"{100 * attacked.mean:.1f}",
                f"{100 * attacked.worst:.1f}",
                (printed_spread or {}).get(summary.method, ""),
                f"{100 * attacked.spread:.2f}",
                *(f"{share:.1%}" if summary.method in CHECKED else "" for share in checks),
                str(len(summary.trials)),
            )
        )
    columns = (
        *("", "rounds before", "accuracy before", "watched", "paper, attacked", "attacked", "worst"),
        *("paper's spread", "spread", "refused before", "watched", "attacked", "trials"),
    )
    return Table(title, columns, rows, note).without_empty_columns()


def _percent(success: InferenceSuccess) -> str:
    return mean_and_spread([100 * accuracy for accuracy in success.accuracies], ".1f")


def _interval(success: InferenceSuccess) -> str:
    low, high = success.interval
    return f"{100 * low:.1f} to {100 * high:.1f}"


def _area(success: InferenceSuccess) -> str:
    return mean_and_spread(success.aucs, ".3f")


def _card_line(summary: MethodSummary, baseline: MethodSummary) -> CardLine:
    best, outcome = summary.best, outcome_against(summary, baseline)
    if not best.success.beats_guess:
        why = "no effect at this size, which proves nothing"
        if summary.active.refused > _STANDS_STILL:
            why += "; the loss check refuses the poisoned steps, and honest participants stop learning"
    elif summary.method == "fedavg":
        why = "every participant downloads the common model, which shows which records honest participants learn again"
    elif summary.method == "ditto":
        why = "personal models are not shared, but attackers see the same common model as in FedAvg"
    else:
        why = f"the {best.view} distinguishes members from others"
        why += ", and follows from the sums alone" if best.view == PUBLIC else ""
    why += f" (AUC {_area(best.success)}, {best.doing})"
    return CardLine("active membership inference", NAMES[summary.method], outcome, why)


def _remarks(attack: ActiveMembership) -> Iterator[str]:
    yield (
        "Attackers in confined descent see only their own models and the sums. The sums add up to the public "
        "displacement, which is a model too: any eavesdropper on the sums can compute it."
    )
    yield (
        "Ditto's common model is that of FedAvg, so attackers learn the same from both. The methods differ in how "
        "good the models of honest participants stay."
    )
    yield (
        "The loss check turns poisoning into denial of service: a participant that refuses every step stops learning. "
        "Strengths are tuned on FedAvg: an attacker who tunes on confined descent may do better than shown here."
    )
    if attack.train_on_targets:
        yield (
            "Attackers trained on the non-members before the attack, so the models have seen these too, and what is "
            "measured is no longer membership. The paper's numbers were obtained in this way."
        )


_INFERRED = (
    "Right: the share of targets classified correctly, if a record is called a member when {}; guessing gets 50%. The "
    "interval (95%) is exact, over the targets of all trials. AUC: how often a member's loss is below that of a "
    "non-member; guessing gets 0.5. ± is the sample standard deviation over trials."
)
_LEFT = (
    "{} on examples that no one trained on and that are no targets, in percent: the mean over honest participants' "
    "models when the attack begins, at its end if attackers only watch, and at its end under attack; then the worst "
    "model under attack, and the standard deviation over models in points. Refused: the share of steps that honest "
    "participants refuse, while attackers train, watch and attack. Without a loss check no step is refused."
)
_AREAS = (
    "Area under the ROC curve of the loss, mean over trials; solid while attacking, dotted while only watching. "
    "Guessing gets 0.5."
)

_UTILITIES = "{} on test examples, mean over honest participants and trials; dotted if attackers only watch."


def areas(summaries: Mapping[MethodName, MethodSummary]) -> Figure:
    """Draw the AUC over the rounds: of the common model, or of the public displacement."""

    def lines() -> Iterator[Trace]:
        for method, summary in summaries.items():
            if method == "ditto":  # its attackers see what those of FedAvg see
                continue
            *_, view = summary.active.views
            name = f"{NAMES[method]}: {view}"
            yield _line(summary.active.rounds, summary.active.curve(view), name, _COLORS[method], "solid", "%{y:.3f}")
            yield _line(summary.passive.rounds, summary.passive.curve(view), name, _COLORS[method], "dot", "%{y:.3f}")

    layout = make_layout("round of the attack", "AUC", xaxis=_PLAIN, shapes=[reference_line(GUESS)])
    last = {method: [*summary.active.views.values()][-1].auc for method, summary in summaries.items()}
    best = "; ".join(f"{NAMES[method]} {area:.2f}" for method, area in last.items())
    return Figure(list(lines()), layout, 340, f"Area under the ROC curve over the rounds of the attack; last: {best}.")


def utilities(summaries: Mapping[MethodName, MethodSummary], score: str) -> Figure:
    """Draw the utility of honest participants' models over the rounds, from 0 up."""

    def lines() -> Iterator[Trace]:
        for method, summary in summaries.items():
            for phase, dash in (summary.active, "solid"), (summary.passive, "dot"):
                xs, ys = [0, *phase.rounds], [summary.before.mean, *phase.utilities()]
                yield _line(xs, ys, NAMES[method], _COLORS[method], dash, "%{y:.1%}")

    last = "; ".join(f"{NAMES[method]} {summary.active.utility.mean:.0%}" for method, summary in summaries.items())
    percent = {"tickformat": "~%", "range": [0, 1.02]}
    layout = make_layout("round of the attack", score, xaxis=_PLAIN, yaxis=percent)
    return Figure(
        list(lines()),
        layout,
        340,
        f"{score.capitalize()} over the rounds of the attack; at the end, under attack: {last}.",
    )


def _line(xs: list[int], ys: list[float], name: str, color: str, dash: str, shown: str) -> Trace:
    width = 2.5 if dash == "solid" else 1.5
    line = draw_line(name, xs, ys, hover=f"round %{{x}}<br>{text(name)}: {shown}", color=color, width=width, dash=dash)
    return line | {"legendgroup": name, "showlegend": dash == "solid"}
