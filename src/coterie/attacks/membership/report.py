"""The report on passive membership inference: how well each view distinguishes members from others."""

from collections.abc import Mapping, Sequence

from coterie.attacks.membership.measure import (
    BUDGETED,
    CLIENT,
    NOTHING,
    SECURE,
    SPARSE,
    PassiveMembership,
    PassiveTrial,
    sum_of,
)
from coterie.attacks.membership.statistics import (
    ATTACKS,
    GUESSING,
    InferenceSummary,
    mean_accuracy,
    strongest,
    summarise,
    summarise_budget,
)
from coterie.reports.charts import Figure, Trace, draw_line, make_layout, text
from coterie.reports.findings import CardLine, Effect, Findings, Plot, Table
from coterie.reports.intervals import write_reach
from coterie.reports.words import Level, count

_FEW = (
    "TPR at FPR: the share of members found if at most this share of non-members is taken for members; in brackets, "
    "how many non-members that is over all trials. Where it is 0, no non-member of a trial scores as high as the "
    "members found. The first row is guessing. Model's accuracy: on examples that no one trained on."
)
_COLORS = {"lira": "@accent", "rmia": "@caution"}
_REMARKS = (
    "A masked upload is uniformly distributed, so an attack on it is guessing by construction and shows only that the "
    "masks work. Secure aggregation reveals the sum, and no protocol of this kind makes the sum reveal less.",
    "Every row uses the attack that is strongest on plain averaging, with the same number of reference models. "
    "Thresholds are chosen on the attacker's own models. Intervals are over trials (95%); those of members found "
    "treat all candidates as independent.",
    "An attack that fails here may succeed elsewhere: more rounds, fewer examples for each client and larger models "
    "all help it. Only noise comes with a proof.",
)


def report(attack: PassiveMembership, trials: Sequence[PassiveTrial]) -> Findings:
    """Report on all trials; the attack that is strongest on plain averaging is used for the verdict."""
    summaries, accuracy, budget = summarise(trials), mean_accuracy(trials), summarise_budget(trials)
    views, chosen = view_names(attack), strongest(summaries[CLIENT])
    best = {view: summaries[view][chosen] for view in views}
    return Findings(
        level=_level(best),
        headlines=[_headline(best, views, ATTACKS[chosen])],
        about=_about(attack),
        numbers={
            "strongest": chosen,
            "views": {
                view: {name: one.record() for name, one in attacks.items()} for view, attacks in summaries.items()
            },
            "accuracy": accuracy,
            "budget": budget,
            "epsilon": attack.epsilon,
        },
        tables=[
            views_table("What every attack finds", views, summaries, accuracy, note=_FEW),
            _decisions(best, views, ATTACKS[chosen]),
        ],
        card=[
            CardLine(attack.title, name, _outcome(view, best), _why(view, best[view]))
            for view, name in views.items()
            if view != NOTHING
        ],
        plots=[draw_views(summaries, views), draw_budget(budget, views)],
        remarks=_REMARKS,
    )


def view_names(attack: PassiveMembership) -> dict[str, str]:
    """Return the names of the views, in the order in which they are shown."""
    last = attack.cohorts[-1]
    names = {
        NOTHING: "nothing (members drawn again)",
        CLIENT: "a client's model, plain averaging",
        SECURE: "its masked upload, SA",
        SPARSE: f"its masked upload, CCESA with p = {attack.connection:g}",
        **{sum_of(clients): f"the sum of {clients} clients" for clients in attack.cohorts},
    }
    if attack.epsilon is not None:
        names[sum_of(last, noisy=True)] = f"the sum of {last} with noise, ε = {attack.epsilon:.1f}"
    return names


def _about(attack: PassiveMembership) -> str:
    noisy = (
        f" With noise, updates are clipped to {attack.norm:g} and every sum has Gaussian noise of {attack.noise:g} "
        f"times that: ε = {attack.epsilon:.2f} for a whole client at δ = {attack.delta:g}."
        if attack.epsilon is not None
        else ""
    )
    return (
        f"{attack.data}, {attack.model}, {count(attack.examples, 'example')} a client, {count(attack.rounds, 'round')} "
        f"of {count(attack.epochs, 'epoch')}, everybody in every round. {count(2 * attack.examples, 'candidate')}, "
        f"half of them the client's; {count(attack.references, 'reference model')}, {count(attack.victims, 'victim')}, "
        f"{count(attack.trials, 'trial')}. Models and uploads are seen among {attack.cohorts[-1]} clients; the uploads "
        f"are those of real sessions, on a complete graph and on an Erdős-Rényi graph with threshold "
        f"{attack.threshold} (the paper's own rule asks for a complete graph with so few clients). Sums are computed "
        f"in the clear, and each session is checked to open the same.{noisy}"
    )


def _headline(best: Mapping[str, InferenceSummary], views: Mapping[str, str], attack: str) -> str:
    client = best[CLIENT]
    if not client.beats_guessing:
        return f"{attack} does not work on plain averaging in this setting ({_auc(client)}), so it says nothing here."
    masked = [view for view in (SECURE, SPARSE) if best[view].beats_guessing]
    uploads = (
        f"the attack beats guessing on {' and '.join(views[view] for view in masked)}"
        if masked
        else "a masked upload reveals nothing"
    )
    sums = [view for view in views if view.startswith("sum-")]
    leaking = [f"{_auc(best[view])} for {views[view]}" for view in sums if best[view].beats_guessing]
    rest = f"the sum reveals it too: {', '.join(leaking)}" if leaking else "an attack on the sum is not shown to work"
    return (
        f"A client's model in plain averaging reveals who was trained on ({_auc(client)}, {attack}); {uploads}; {rest}."
    )


def _level(best: Mapping[str, InferenceSummary]) -> Level:
    if not best[CLIENT].beats_guessing:
        return Level.NOTHING
    return Level.DANGER if best[SECURE].beats_guessing or best[SPARSE].beats_guessing else Level.CAUTION


def _outcome(view: str, best: Mapping[str, InferenceSummary]) -> Effect:
    one, client = best[view], best[CLIENT]
    if view in (SECURE, SPARSE):
        return Effect.NOT_ELIMINATED if one.beats_guessing else Effect.ELIMINATED
    ours, theirs = one.auc_interval, client.auc_interval
    if ours is not None and theirs is not None and ours[1] < theirs[0]:
        return Effect.REDUCED
    return Effect.NOT_ELIMINATED if one.beats_guessing else Effect.NOT_SHOWN


def _why(view: str, one: InferenceSummary) -> str:
    if view == CLIENT:
        return f"{_auc(one)}: the client sends its model unmasked"
    if view in (SECURE, SPARSE):
        return f"{_auc(one)}: the masked upload is indistinguishable from a uniform one"
    if view.startswith("noisy"):
        return f"{_auc(one)}: noise bounds what any attack can achieve"
    shown = (
        "the sum only dilutes the update"
        if one.beats_guessing
        else "not shown to work, which proves nothing: the sum only dilutes the update"
    )
    return f"{_auc(one)}: {shown}"


def _auc(one: InferenceSummary) -> str:
    return f"AUC {one.auc:.2f}"


def views_table(
    title: str,
    views: Mapping[str, str],
    found: Mapping[str, Mapping[str, InferenceSummary]],
    accuracy: Mapping[str, float],
    note: str = "",
) -> Table:
    """Return the success of every attack on each view, and the members found at low false-positive rates."""
    chosen = strongest(found[CLIENT])
    rows = [
        (
            name,
            *(write_reach(one.auc, one.auc_interval, ".3f") for one in found[view].values()),
            *(
                f"{part.share:.1%} ({part.interval[0]:.1%} to {part.interval[1]:.1%})"
                for part in found[view][chosen].found
            ),
            f"{accuracy[view]:.1%}" if view in accuracy else "",
        )
        for view, name in views.items()
    ]
    few = [
        f"{ATTACKS[chosen]}: TPR at {part.rate:.1%} FPR ({part.false_alarms} of {part.others:,})"
        for part in found[CLIENT][chosen].found
    ]
    return Table(title, ("seen", *(f"AUC {name}" for name in ATTACKS.values()), *few, "model's accuracy"), rows, note)


def _decisions(best: Mapping[str, InferenceSummary], views: Mapping[str, str], attack: str) -> Table:
    return Table.of(
        f"What {attack} decides",
        [(name, best[view]) for view, name in views.items()],
        [
            ("seen", lambda row: row[0]),
            ("accuracy", lambda row: f"{row[1].balanced_accuracy:.1%}"),
            ("precision", lambda row: "–" if row[1].precision is None else f"{row[1].precision:.1%}"),
            ("recall", lambda row: f"{row[1].recall:.1%}"),
        ],
        "Accuracy is balanced. The threshold is the best one on the attacker's own models.",
    )


def draw_views(summaries: Mapping[str, Mapping[str, InferenceSummary]], views: Mapping[str, str]) -> Plot:
    """Draw AUC with its interval for each view, side by side for the two strongest attacks."""
    names = [text(name) for name in views.values()]
    traces: list[Trace] = []
    for attack in BUDGETED:
        shown = [summaries[view][attack] for view in views]
        reach = [one.auc_reach for one in shown]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": ATTACKS[attack],
                "y": names,
                "x": [one.auc - GUESSING for one in shown],
                "base": GUESSING,
                "marker": {"color": _COLORS[attack]},
                "error_x": {"type": "data", "array": reach, "color": "@ink", "thickness": 1},
                "hovertemplate": "%{y}: AUC %{x:.3f}<extra>" + ATTACKS[attack] + "</extra>",
            }
        )
    layout = make_layout(
        "AUC (0.5 is guessing)",
        "",
        xaxis={"range": [0.4, 1.0]},
        yaxis={"autorange": "reversed", "automargin": True},
        barmode="group",
        margin={"l": 240, "t": 30, "b": 50},
    )
    figure = Figure(traces, layout, 100 + 44 * len(names), "AUC of two attacks on everything that is seen")
    return Plot("What each view reveals", figure, "Bars begin at guessing; whiskers are 95% intervals over trials.")


def draw_budget(budget: Mapping[str, Mapping[str, Sequence[tuple[int, float]]]], views: Mapping[str, str]) -> Plot:
    """Draw AUC by the number of reference models."""
    traces = [
        draw_line(
            f"{ATTACKS[attack]}, {views[view]}",
            [size for size, _ in curve],
            [area for _, area in curve],
            mode="lines+markers",
            color=_COLORS[attack],
            dash="solid" if view == CLIENT else "dot",
        )
        for view, attacks in budget.items()
        for attack, curve in attacks.items()
    ]
    sizes = sorted({size for attacks in budget.values() for curve in attacks.values() for size, _ in curve})
    ticks = {"type": "log", "tickvals": sizes, "ticktext": list(map(str, sizes))}
    layout = make_layout("reference models", "AUC", xaxis=ticks)
    figure = Figure(traces, layout, 380, "AUC by the number of reference models")
    return Plot(
        "AUC and the number of reference models", figure, "Means over trials. Solid: a client's model. Dotted: the sum."
    )
