"""The verdict on the attack, in words that follow from its numbers."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from coterie.attacks.active_membership.figures import areas, utilities
from coterie.attacks.active_membership.methods import PUBLIC, MethodName
from coterie.attacks.active_membership.summary import InferenceSuccess, MethodSummary
from coterie.attacks.active_membership.tasks import InferenceTask
from coterie.attacks.finding import AttackFinding, CardLine, Effect, Plot, WordTable
from coterie.reports.intervals import mean_and_spread, mean_interval
from coterie.reports.words import Level, count

if TYPE_CHECKING:
    from coterie.attacks.active_membership.measure import ActiveMembership

NAMES: Mapping[MethodName, str] = {
    "fedavg": "FedAvg",
    "ditto": "Ditto",
    "confined": "confined, no loss check",
    "confined-checked": "confined, loss check",
    "confined-anchored": "confined, loss check, anchored attackers",
}
_CONFINED: tuple[MethodName, ...] = ("confined", "confined-checked", "confined-anchored")
_STANDS_STILL = 0.9  # refusing this share of all steps is to stand still
_NOTABLE = 0.05


def tell(
    attack: "ActiveMembership",
    task: InferenceTask,
    strength: float,
    tuning: Mapping[float, float],
    nothing: InferenceSuccess,
    summaries: Mapping[MethodName, MethodSummary],
) -> AttackFinding:
    """Put everything together."""
    found, secure_error = list(summaries.values()), attack.secure_error(strength)
    card = [_card_line(summary, summaries["fedavg"]) for summary in found]
    confined = [line.outcome for method, line in zip(summaries, card, strict=True) if method in _CONFINED]
    return AttackFinding(
        level=_level(confined, works=summaries["fedavg"].best.success.beats_guess),
        headline=_headline(summaries, task),
        setting=_setting(attack, task, strength, tuning, secure_error),
        measures={
            "strength": strength,
            "tuning": {str(tried): accuracy for tried, accuracy in tuning.items()},
            "no_information": nothing.measures(),
            "methods": {method: summary.measures() for method, summary in summaries.items()},
            "secure_sum_error": secure_error,
        },
        tables=[_inferred(nothing, found, task), _left(found, task), _refused(found)],
        card=card,
        plots=[
            Plot("What attackers learn, round by round", areas(summaries, NAMES), _AREAS),
            Plot("What honest participants are left with", utilities(summaries, NAMES, task.worth), _utilities(task)),
        ],
        remarks=list(_remarks(attack)),
    )


def outcome_against(summary: MethodSummary, baseline: MethodSummary) -> Effect:
    """Say what a method does to the attack, beside the baseline under the same one.

    Never *eliminated*: no theorem says that confined descent hides members, whatever was measured. *Not shown* where
    the attack works on neither.
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
        return "The attack does no better than a guess on FedAvg here, so that it says nothing of any defence."
    often = f"{won.auc:.0%} of the time" if won.beats_guess else "no more often than a guess"
    against = "no more often than a guess"
    if leaks:
        best = max(leaks, key=lambda one: one.success.auc)
        against = f"{best.success.auc:.0%} at best ({best.doing}, from the {best.view})"
    said = (
        f"Attackers rank members above others {often} with FedAvg, and {against} with confined descent; a guess has "
        "50%."
    )
    lost = confined[0].passive.utility.mean - confined[0].active.utility.mean
    if lost > _NOTABLE:
        said += f" Without a loss check, confined models lose {100 * lost:.0f} points of {task.worth} to the attack."
    if all(summary.active.refused > _STANDS_STILL for summary in confined[1:]):
        said += " With it, they refuse the poison, and all learning stops."
    return said


def _setting(
    attack: "ActiveMembership", task: InferenceTask, strength: float, tuning: Mapping[float, float], secure_error: float
) -> str:
    tried = ", ".join(f"{one:g}: {accuracy:.0%}" for one, accuracy in tuning.items())
    chosen = f"strength {strength:g}" + (f" (the best on FedAvg in a trial apart; {tried})" if tuning else "")
    before = (
        "Before, attackers train on their targets, non-members included, as in the code of the paper."
        if attack.train_on_targets
        else "Before, attackers train on examples of their own."
    )
    return (
        f"{attack.data}: {count(attack.participants, 'honest participant')} and {attack.malicious} malicious, "
        f"{attack.examples} examples and, for each attacker, {attack.examples // 2 * 2} targets, half of them members. "
        f"Network with one hidden layer of 256, full batches, steps of {attack.step:g} along the mean of all, starts "
        f"of deviation {attack.spread:g}. {before} Once their models {task.reaches.format(f'{attack.threshold:.0%}')}, "
        f"or after {attack.patience} rounds, they attack for {attack.rounds} rounds with {chosen}, towards "
        f"{task.wrong}; all of that is the same for every method. Sums are made in the clear, because the attack uses "
        f"nothing but sums; played once as a real session, one differs by {secure_error:.0e} of its largest entry. "
        f"{count(attack.trials, 'trial')}."
    )


def _inferred(nothing: InferenceSuccess, summaries: Iterable[MethodSummary], task: InferenceTask) -> WordTable:
    rows = [("a model that saw no target", "", _share(nothing), _interval(nothing), "", _area(nothing))]
    for summary in summaries:
        for view, success in summary.active.views.items():
            watched = summary.passive.views[view]
            by_rule = f"{watched.accuracy:.1%}", _share(success), _interval(success)
            rows.append((f"{NAMES[summary.method]}: {view}", *by_rule, f"{watched.auc:.3f}", _area(success)))
    return WordTable(
        "What attackers infer",
        ("from", "right, watching", "attacking", "95% interval", "AUC, watching", "attacking"),
        rows,
        f"Right: a record is called a member if {task.rule}; a guess has 50%."
        " The interval is exact, over the targets of all trials. AUC: how often a member's loss is below that of a "
        "non-member, at whatever threshold; a guess has 0.5. ± is the sample deviation over trials.",
    )


def _share(success: InferenceSuccess) -> str:
    deviation = success.measures()["accuracy_deviation"]
    return f"{success.accuracy:.1%}" + ("" if deviation is None else f" ± {100 * deviation:.1f}")


def _interval(success: InferenceSuccess) -> str:
    low, high = success.interval
    return f"{low:.1%} to {high:.1%}"


def _area(success: InferenceSuccess) -> str:
    return mean_and_spread(success.aucs, ".3f")


def _left(summaries: Iterable[MethodSummary], task: InferenceTask) -> WordTable:
    rows = [
        (
            NAMES[summary.method],
            f"{summary.before.mean:.1%}",
            f"{watched.mean:.1%}",
            f"{attacked.mean:.1%}",
            f"{attacked.worst:.1%}",
            f"{100 * watched.spread:.1f}",
            f"{100 * attacked.spread:.1f}",
        )
        for summary in summaries
        for watched, attacked in [(summary.passive.utility, summary.active.utility)]
    ]
    return WordTable(
        "What honest participants are left with",
        ("", "before", "watched", "attacked", "worst", "spread, watched", "attacked"),
        rows,
        f"{task.worth.capitalize()} on examples that nobody trained on or asked about: the mean over honest "
        "participants' models when the attack begins and at its end, the worst of them, and their standard deviation "
        "in points.",
    )


def _refused(summaries: Iterable[MethodSummary]) -> WordTable:
    rows = [
        (
            NAMES[summary.method],
            f"{summary.began:.0f}",
            f"{summary.refused_before:.1%}",
            f"{summary.passive.refused:.1%}",
            f"{summary.active.refused:.1%}",
        )
        for summary in summaries
    ]
    return WordTable(
        "What is refused",
        ("", "rounds before", "clean, before", "clean, watched", "poisoned"),
        rows,
        "The share of honest participants' decisions not to take a step up: while attackers train, while they watch, "
        "and while they attack. Without a loss check nobody refuses anything.",
    )


def _card_line(summary: MethodSummary, baseline: MethodSummary) -> CardLine:
    best, outcome = summary.best, outcome_against(summary, baseline)
    if not best.success.beats_guess:
        why = "nothing was seen at this size, and nothing proves it"
        if summary.active.refused > _STANDS_STILL:
            why += "; the loss check refuses the poison, and honest participants stand still"
    elif summary.method == "fedavg":
        why = "everybody downloads the common model, which shows what honest participants learn again"
    elif summary.method == "ditto":
        why = "personal models stay at home, but attackers see the same common model as in FedAvg"
    else:
        why = f"the {best.view} tells members from others"
        why += ", and follows from the sums alone" if best.view == PUBLIC else ""
    why += f" (AUC {_area(best.success)}, {best.doing})"
    return CardLine("active membership inference", NAMES[summary.method], outcome, why)


def _remarks(attack: "ActiveMembership") -> Iterator[str]:
    yield (
        "Attackers in confined descent see no model but their own, and the sums. That is enough for the public "
        "displacement, which is a model too: whoever merely listens to the sums has it."
    )
    yield (
        "Ditto's common model is FedAvg's, so that attackers learn the same from both; the methods differ in what is "
        "left to honest participants."
    )
    yield (
        "The loss check turns poison into denial of service: who refuses every step learns nothing more. Strengths are "
        "tuned on FedAvg: an attacker who tunes on confined descent may do better than is shown here."
    )
    if attack.train_on_targets:
        yield (
            "Trained on before the attack, non-members are members in all but name: what is measured is then no longer "
            "membership. The paper's numbers are of this kind."
        )


_AREAS = (
    "Area under the ROC curve of the loss, mean over trials; solid while attacking, dotted while only watching. "
    "0.5 is a guess."
)


def _utilities(task: InferenceTask) -> str:
    return (
        f"{task.worth.capitalize()} on test examples, mean over honest participants and trials; dotted if only watched."
    )
