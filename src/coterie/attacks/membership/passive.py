"""Passive membership inference against plain averaging, masked uploads, and the sums that everybody may see."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from coterie.attacks.finding import Adversary, AttackFinding, CardLine, Effect, OnProgress, WordTable
from coterie.attacks.membership.figures import draw_budget, draw_views
from coterie.attacks.membership.measure import (
    CLIENT,
    NOTHING,
    SECURE,
    SPARSE,
    Game,
    play_trial,
    sum_of,
    trial_seed,
)
from coterie.attacks.membership.summary import (
    InferenceSummary,
    mean_accuracy,
    strongest,
    summarise,
    summarise_budget,
)
from coterie.attacks.progress import within
from coterie.reports.words import Level, count

ATTACKS = {"loss": "loss threshold", "shadow": "shadow models", "lira": "LiRA", "rmia": "RMIA"}
"""The attacks as they are called in texts."""

_REMARKS = (
    "A masked upload is uniformly distributed whatever is under the mask: attacking it is guessing by construction, "
    "and shows that the masks work, no more. The sum is what secure aggregation publishes; no protocol of this kind "
    "makes it say less.",
    "The attack that is strongest on plain averaging is used everywhere, with as many reference models; thresholds are "
    "chosen on the attacker's own models. Intervals are over trials (95%), those of found members as if all candidates "
    "were independent.",
    "An attack that fails here may succeed elsewhere: more rounds, fewer examples for each client and larger models "
    "all help it. Only noise has a proof.",
)


@dataclass(frozen=True)
class PassiveMembership(Game):
    """Membership inference by somebody who only looks."""

    name: ClassVar[str] = "membership"
    title: ClassVar[str] = "Passive membership inference"

    @property
    def threat(self) -> Adversary:
        """Two who look: at the wire, and at the server."""
        return Adversary(
            who="an eavesdropper at a client's wire, or the server; honest but curious",
            sees=(
                "the eavesdropper: the global models and one client's upload in the last round; "
                "the server: the global models, which are the sums"
            ),
            knows=(
                "the model, how it is trained, other data from the same source, and a list of candidates of which half "
                "are the client's; may train reference models with candidates in them and out of them"
            ),
            may="look, and nothing else",
        )

    def play(self, watch: OnProgress) -> AttackFinding:
        """Run every attack on every view, and tell."""
        trials = []
        for trial in range(self.trials):

            def told(what: str, done: float, trial: int = trial) -> None:
                within(partial(watch, f"trial {trial + 1}: {what}"), trial / self.trials, 1 / self.trials)(done)

            trials.append(play_trial(self, trial_seed(self.seed, trial), told))
        summaries, accuracy, budget = summarise(trials), mean_accuracy(trials), summarise_budget(trials)
        chosen = strongest(summaries[CLIENT])
        best = {view: summaries[view][chosen] for view in self.views}
        return AttackFinding(
            level=_level(best),
            headline=_headline(best, self.views, ATTACKS[chosen]),
            setting=self._setting(),
            measures={
                "strongest": chosen,
                "views": {
                    view: {name: one.record() for name, one in attacks.items()} for view, attacks in summaries.items()
                },
                "accuracy": accuracy,
                "budget": budget,
                "epsilon": self._epsilon,
            },
            tables=[
                _table(best, self.views, accuracy, ATTACKS[chosen]),
                _few_alarms(best, self.views, ATTACKS[chosen]),
                _comparison(summaries, self.views),
            ],
            card=[
                CardLine(self.title, name, _outcome(view, best), _why(view, best[view]))
                for view, name in self.views.items()
                if view != NOTHING
            ],
            plots=[draw_views(summaries, self.views), draw_budget(budget, self.views)],
            remarks=_REMARKS,
        )

    @property
    def views(self) -> Mapping[str, str]:
        """What is attacked, in words, in the order in which it is shown."""
        last = self.cohorts[-1]
        named = {
            NOTHING: "nothing (members drawn anew)",
            CLIENT: "a client's model, plain averaging",
            SECURE: "its masked upload, SA",
            SPARSE: f"its masked upload, CCESA with p = {self.connection:g}",
            **{sum_of(clients): f"the sum of {clients} clients" for clients in self.cohorts},
        }
        if self._epsilon is not None:
            named[sum_of(last, noisy=True)] = f"the sum of {last} with noise, ε = {self._epsilon:.1f}"
        return named

    @property
    def _epsilon(self) -> float | None:
        noise = self.training(self.cohorts[-1], noisy=True).noise
        return noise.epsilon(self.rounds, self.delta) if noise and self.noise else None

    def _setting(self) -> str:
        noisy = (
            f" With noise, updates are clipped to {self.norm:g} and every sum has Gaussian noise of {self.noise:g} "
            f"times that: ε = {self._epsilon:.2f} for a whole client at δ = {self.delta:g}."
            if self._epsilon is not None
            else ""
        )
        return (
            f"{self.data}, {self.model}, {count(self.examples, 'example')} a client, {count(self.rounds, 'round')} of "
            f"{count(self.epochs, 'epoch')}, everybody in every round. {count(2 * self.examples, 'candidate')}, half "
            f"of them the client's; {count(self.references, 'reference model')}, {count(self.victims, 'victim')}, "
            f"{count(self.trials, 'trial')}. Models and uploads are seen among {self.cohorts[-1]} clients; the uploads "
            f"are those of real sessions, on a complete graph and on an Erdős-Rényi graph with threshold "
            f"{self.threshold} (the paper's own rule asks for a complete graph with so few clients). Sums are computed "
            f"in the clear, and each session is checked to open the same.{noisy}"
        )


def _headline(best: Mapping[str, InferenceSummary], views: Mapping[str, str], attack: str) -> str:
    client = best[CLIENT]
    if not client.beats_guessing:
        return f"{attack} does not work on plain averaging in this setting ({_auc(client)}), so it says nothing here."
    masked = [view for view in (SECURE, SPARSE) if best[view].beats_guessing]
    uploads = (
        f"something of it is seen in {' and '.join(views[view] for view in masked)}"
        if masked
        else "a masked upload tells nothing"
    )
    sums = [view for view in views if view.startswith("sum-")]
    leaking = [f"{_auc(best[view])} for {views[view]}" for view in sums if best[view].beats_guessing]
    rest = f"the sum still tells: {', '.join(leaking)}" if leaking else "of the sum, nothing could be shown"
    return (
        f"A client's model in plain averaging tells who was trained on ({_auc(client)}, {attack}); {uploads}; {rest}."
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
        return f"{_auc(one)}: what the client sends is its model, as it is"
    if view in (SECURE, SPARSE):
        return f"{_auc(one)}: the mask is as good as uniform, whatever is under it"
    if view.startswith("noisy"):
        return f"{_auc(one)}: noise bounds what any attack can do"
    shown = (
        "others dilute it, nothing more" if one.beats_guessing else "nothing shown, nothing proven: others dilute it"
    )
    return f"{_auc(one)}: {shown}"


def _auc(one: InferenceSummary) -> str:
    return f"AUC {one.auc:.2f}"


def _table(
    best: Mapping[str, InferenceSummary], views: Mapping[str, str], accuracy: Mapping[str, float], attack: str
) -> WordTable:
    rows = [
        (
            name,
            _area(best[view]),
            f"{best[view].balanced_accuracy:.1%}",
            "–" if best[view].precision is None else f"{best[view].precision:.1%}",
            f"{best[view].recall:.1%}",
            f"{accuracy[view]:.1%}" if view in accuracy else "–",
        )
        for view, name in views.items()
    ]
    return WordTable(
        f"What {attack} finds",
        ("seen", "AUC", "accuracy", "precision", "recall", "the model itself"),
        rows,
        "Accuracy is balanced; the last column is the model's own, on examples nobody trained on.",
    )


def _few_alarms(best: Mapping[str, InferenceSummary], views: Mapping[str, str], attack: str) -> WordTable:
    low = best[CLIENT].found
    rows = [
        (
            name,
            *(f"{part.share:.1%} ({part.interval[0]:.1%} to {part.interval[1]:.1%})" for part in best[view].found),
        )
        for view, name in views.items()
    ]
    counted = " and ".join(f"{part.false_alarms} of {part.others:,}" for part in low)
    return WordTable(
        f"Members that {attack} finds with few false alarms",
        ("seen", *(f"TPR at {part.rate:.1%} FPR" for part in low)),
        rows,
        f"False alarms that are allowed, over all trials: {counted}. Where that is 0, no other example of a trial "
        "scores as high as those found, which is all that can be seen with so few; the first row is chance.",
    )


def _comparison(summaries: Mapping[str, Mapping[str, InferenceSummary]], views: Mapping[str, str]) -> WordTable:
    rows = [(name, *(_area(one) for one in summaries[view].values())) for view, name in views.items()]
    return WordTable("AUC of every attack", ("seen", *ATTACKS.values()), rows)


def _area(one: InferenceSummary) -> str:
    reach = f"\u00a0±\u00a0{one.auc_interval[1] - one.auc:.3f}" if one.auc_interval else ""
    return f"{one.auc:.3f}{reach}"
