"""Active membership inference: the inference, the methods, which are those of the library, and the verdict."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.records import record_of, words_of
from typer.testing import CliRunner

from coterie.attacks.active_membership.measure import ActiveMembership
from coterie.attacks.active_membership.methods import (
    COMMON,
    METHODS,
    OWN,
    PUBLIC,
    AttackedDescent,
    MethodName,
    crafted,
    outputs,
)
from coterie.attacks.active_membership.records import DealtRecords
from coterie.attacks.active_membership.report import outcome_against
from coterie.attacks.active_membership.settings import PRESETS, ActiveMembershipSettings
from coterie.attacks.active_membership.statistics import InferenceSuccess, MethodSummary
from coterie.attacks.active_membership.tasks import Classification, Regression, infer
from coterie.attacks.active_membership.trial import (
    HonestUtility,
    MethodTrial,
    infer_without_targets,
    play,
)
from coterie.attacks.attack import run_attack
from coterie.attacks.federation import flat, play_round, public_model
from coterie.attacks.ranking import area_under_curve
from coterie.cli import app
from coterie.confined import LOSS_CHECKS, ConfinedDescent, ConstantStep, NoCheck, Offsets
from coterie.confined.network import loss_and_gradient
from coterie.errors import ConfigError, InputError
from coterie.reports.findings import Effect
from coterie.reports.words import Level
from coterie.training.executors.processes import InProcess
from coterie.training.local import ArrayData, LocalSGD, Problem
from coterie.training.models import build
from coterie.training.schedules import Curriculum
from coterie.training.strategies import Confined, Ditto, FedAvg, Strategy

HONEST, MALICIOUS, EXAMPLES = 3, 2, 12


@pytest.fixture(scope="module")
def dealt() -> DealtRecords:
    return DealtRecords.deal("digits", HONEST, MALICIOUS, EXAMPLES, seed=0, tests=200)


class TestInference:
    @given(st.integers(0, 2**32), st.integers(1, 30))
    def test_a_model_that_memorised_its_members_reveals_all_of_them(self, seed: int, half: int) -> None:
        rng = np.random.default_rng(seed)
        members = rng.permutation(np.arange(2 * half) < half)
        labels = rng.integers(0, 10, members.size)
        logits = np.eye(10)[np.where(members, labels, Classification(10).decoys(labels, rng))]
        found = infer(Classification(10), logits, labels, members)
        assert (found.accuracy, found.members_found, found.false_alarms, found.auc) == (1, 1, 0, 1)

    def test_losses_are_cross_entropies_and_never_overflow(self) -> None:
        found = Classification(2).losses(np.array([[1000.0, 0.0], [0.0, 0.0]]), np.array([1, 0]))
        assert found == pytest.approx([1000, np.log(2)])

    def test_inference_refuses_what_cannot_be_compared(self) -> None:
        with pytest.raises(InputError, match="a row of outputs"):
            infer(Classification(10), np.zeros((3, 2)), np.zeros(2, int), np.ones(2, bool))
        with pytest.raises(InputError, match="positives and others"):
            area_under_curve(np.zeros(2), np.ones(2, bool))


class TestDealing:
    def test_members_are_trained_on_and_other_targets_are_in_no_other_part(self, dealt: DealtRecords) -> None:
        def rows(x: np.ndarray) -> list[bytes]:
            return [row.tobytes() for row in x]

        trained, targets = set(rows(dealt.honest.x)), rows(dealt.targets.x)
        assert dealt.members.sum() * 2 == len(targets) == 24
        assert [row in trained for row in targets] == dealt.members.tolist()
        aside = [row for row, member in zip(targets, dealt.members, strict=True) if not member]
        assert not set(aside) & (set(rows(dealt.cover.x)) | set(rows(dealt.test.x)))
        assert not trained & (set(rows(dealt.cover.x)) | set(rows(dealt.test.x)))

    def test_random_labels_are_never_the_true_ones(self, dealt: DealtRecords) -> None:
        assert (dealt.decoys != dealt.targets.y).all()
        assert ((dealt.decoys >= 0) & (dealt.decoys < dealt.task.outputs)).all()

    def test_dealing_depends_on_its_seed_alone(self, dealt: DealtRecords) -> None:
        again, other = (
            DealtRecords.deal("digits", HONEST, MALICIOUS, EXAMPLES, seed=seed, tests=200) for seed in (0, 1)
        )
        assert (again.honest.x == dealt.honest.x).all()
        assert (again.decoys == dealt.decoys).all()
        assert (other.honest.x != dealt.honest.x).any()

    @pytest.mark.parametrize(
        ("honest", "examples", "refused"), [(1, 12, "at least"), (3, 1, "at least"), (3, 900, "left to test with")]
    )
    def test_too_few_clients_or_examples_are_refused(self, honest: int, examples: int, refused: str) -> None:
        with pytest.raises(ConfigError, match=refused):
            DealtRecords.deal("digits", honest, MALICIOUS, examples, seed=0)


class TestRegression:
    """Numbers instead of labels: the loss is the squared error, and half of the targets are called members."""

    TASK = Regression(1)

    @given(st.integers(0, 2**32), st.integers(1, 30))
    def test_members_with_smaller_errors_are_all_found(self, seed: int, half: int) -> None:
        rng = np.random.default_rng(seed)
        members = rng.permutation(np.arange(2 * half) < half)
        targets = rng.standard_normal((2 * half, 1))
        errors = np.where(members, rng.uniform(0, 0.1, members.size), rng.uniform(0.2, 3, members.size))
        answers = targets + (errors * rng.choice([-1, 1], members.size))[:, None]
        found = infer(self.TASK, answers, targets, members)
        assert (found.accuracy, found.members_found, found.false_alarms, found.auc) == (1, 1, 0, 1)

    @pytest.mark.parametrize("answers", [np.zeros((8, 1)), np.full((8, 1), np.nan), np.full((8, 1), np.inf)])
    def test_equal_answers_score_like_a_guess_in_any_order(self, answers: np.ndarray) -> None:
        found = infer(self.TASK, answers, np.ones((8, 1)), np.arange(8) < 4)
        assert (found.accuracy, found.auc) == (0.5, 0.5)

    @given(st.integers(0, 2**32), st.floats(0.1, 50), st.floats(-9, 9))
    def test_explained_variance_is_independent_of_scale(self, seed: int, scale: float, shift: float) -> None:
        rng = np.random.default_rng(seed)
        targets, answers = rng.standard_normal((2, 20, 1))
        score = self.TASK.score(answers, targets)
        assert self.TASK.score(scale * answers + shift, scale * targets + shift) == pytest.approx(score)
        assert self.TASK.score(targets, targets) == 1
        assert self.TASK.score(np.full_like(targets, targets.mean()), targets) == pytest.approx(0, abs=1e-12)

    def test_a_diverged_model_has_no_score(self) -> None:
        with pytest.raises(ConfigError, match="training diverges"):
            self.TASK.score(np.full((4, 1), np.nan), np.arange(4.0)[:, None])
        with pytest.raises(ConfigError, match="nothing to learn"):
            self.TASK.score(np.zeros((4, 1)), np.ones((4, 1)))

    @pytest.mark.parametrize("wrong", [["--step", "10"], ["--strength", "1e30"]])
    def test_absurd_numbers_are_refused_in_one_line(self, wrong: list[str], recwarn: pytest.WarningsRecorder) -> None:
        small = ["--data", "energy", "--participants", "3", "--examples", "12", "--rounds", "20", "--trials", "1"]
        result = CliRunner().invoke(app, ["attack", "active-membership", *small, *wrong])
        assert isinstance(result.exception, ConfigError)
        assert "training diverges" in str(result.exception)
        assert not [one for one in recwarn if one.category is RuntimeWarning]

    def test_wrong_answers_have_the_same_error_for_every_record(self) -> None:
        targets = np.random.default_rng(0).normal(3, 2, (500, 2)).astype(np.float32)
        off = Regression(2).decoys(targets, np.random.default_rng(1)) - targets
        assert np.allclose(np.abs(off), targets.std(axis=0), atol=1e-5)
        assert abs(np.sign(off).mean()) < 0.1

    def test_the_contribution_of_attackers_does_not_grow_with_the_error(self) -> None:
        """The gradient of the squared error alone would grow with it."""
        dealt = DealtRecords.deal("energy", HONEST, MALICIOUS, EXAMPLES, seed=0, tests=50)
        (model,) = AttackedDescent("fedavg", dealt, ActiveMembershipSettings(step=0.02)).honest_models(1)
        x, y = dealt.targets.x, dealt.targets.y
        sent = []
        for shift in (0.0, 5.0):  # added to the true numbers and to the wrong ones
            true, decoys = (loss_and_gradient(x, to + np.float32(shift), model)[1] for to in (y, dealt.decoys))
            sent.append(flat(crafted(true, decoys, 1.0)))
        assert np.allclose(sent[0], sent[1], atol=1e-4)

    def test_every_method_learns_to_forecast(self) -> None:
        dealt = DealtRecords.deal("energy", HONEST, MALICIOUS, EXAMPLES, seed=0, tests=200)
        for method in METHODS:
            settings = ActiveMembershipSettings(step=0.02, threshold=0.8, patience=100, rounds=20)
            (watched,) = play(method, dealt, settings, (0.0,), looks=1).courses
            assert watched.last.utility.mean > 0.5

    def test_the_command_reports_forecasts(self) -> None:
        small = ["--data", "energy", "--participants", "3", "--examples", "12", "--rounds", "8", "--trials", "1"]
        said = words_of("attack", "active-membership", *small, "--strength", "0.5")
        assert "explain 90% of the variance" in said
        assert "below the median of all targets" in said
        assert "Explained variance on examples" in said


def turned(parameters: list[np.ndarray]) -> list[np.ndarray]:
    """Return the parameters of the same network in the layout of torch."""
    return [np.ascontiguousarray(array.T) for array in parameters]


EVERYBODY = [f"client-{number}" for number in range(HONEST + MALICIOUS)]


def starts_of(descent: AttackedDescent) -> list[list[np.ndarray]]:
    """Return the start of every participant, honest ones first."""
    return [
        groups.descent.confined(name)
        for groups in (descent._honest, descent._attackers[0])
        for name in groups.grid.names
    ]


class GivenStarts(Offsets):
    """Starts that are given, not drawn."""

    def __init__(self, anchor: list[np.ndarray], starts: dict[str, list[np.ndarray]]) -> None:
        super().__init__(anchor, lambda _: np.random.default_rng(0))
        object.__setattr__(self, "starts", starts)

    def of(self, participant: str) -> list[np.ndarray]:
        found: dict[str, list[np.ndarray]] = vars(self)["starts"]
        return found[participant]


class TestMethods:
    def test_in_fedavg_all_clients_have_the_common_model_after_every_round(self, dealt: DealtRecords) -> None:
        descent = AttackedDescent("fedavg", dealt, ActiveMembershipSettings())
        for _ in range(3):
            descent.train()
            (common,) = descent.honest_models(9)
            assert (descent.answers()[COMMON] == outputs(dealt.targets.x, common)).all()
            everybody = [descent._honest.descent.confined(name) for name in descent._honest.grid.names]
            everybody += [descent._attackers[0].descent.confined(name) for name in descent._attackers[0].grid.names]
            assert all((flat(one) == flat(common)).all() for one in everybody)

    @pytest.mark.parametrize("method", ["fedavg", "ditto", "confined", "confined-checked"])
    def test_every_method_gives_the_models_of_its_strategy(self, dealt: DealtRecords, method: MethodName) -> None:
        recipe = ActiveMembershipSettings(step=0.5, penalty=0.3)
        ours = AttackedDescent(method, dealt, recipe)
        data = ArrayData(
            np.concatenate([dealt.honest.x, dealt.cover.x]), np.concatenate([dealt.honest.y, dealt.cover.y])
        )
        parts = dict(zip(EVERYBODY, np.arange(len(data)).reshape(-1, EXAMPLES), strict=True))
        starts = {name: turned(start) for name, start in zip(EVERYBODY, starts_of(ours), strict=True)}
        problem = Problem(build("mlp", (64,), 10, 0), data)
        model = problem.instance(starts[EVERYBODY[0]])
        curriculum = Curriculum(parts, LocalSGD(recipe.step, batch_size=EXAMPLES, shuffle=False), 0)
        theirs: Strategy
        if method == "fedavg":
            theirs = FedAvg(model, curriculum)
        elif method == "ditto":
            theirs = Ditto(model, curriculum, recipe.penalty)
        else:
            check = LOSS_CHECKS[recipe.check]() if method == "confined-checked" else NoCheck()
            anchor = [np.zeros_like(array) for array in starts[EVERYBODY[0]]]
            descent = ConfinedDescent(GivenStarts(anchor, starts), EVERYBODY, ConstantStep(recipe.step), check)
            theirs = Confined(problem, parts, descent, clip=1e9, seed=0)
        for number in range(1, 5):
            ours.train()
            play_round(theirs, InProcess(problem), number, EVERYBODY)
        expected = theirs.models()
        for name, own in zip(EVERYBODY, ours.honest_models(9), strict=False):
            wanted = expected["global"] if method == "fedavg" else expected[name]
            assert np.allclose(flat(turned(own)), flat(wanted), atol=1e-5)
        shown = PUBLIC if method.startswith("confined") else COMMON
        assert np.allclose(
            ours.answers()[shown], outputs(dealt.targets.x, turned(public_model(theirs))), rtol=1e-4, atol=1e-4
        )

    def test_confined_models_differ_and_attackers_query_the_public_model_and_their_own(
        self, dealt: DealtRecords
    ) -> None:
        descent = AttackedDescent("confined", dealt, ActiveMembershipSettings())
        before = [flat(model) for model in descent.honest_models(9)]
        descent.train()
        after = [flat(model) for model in descent.honest_models(9)]
        moves = [one - other for one, other in zip(after, before, strict=True)]
        assert np.linalg.norm(after[0] - after[1]) > 1
        assert np.allclose(moves[0], moves[1], atol=1e-6)
        assert set(descent.answers()) == {OWN, PUBLIC}
        public = descent._honest.descent.public_model
        assert np.allclose(descent.answers()[PUBLIC], outputs(dealt.targets.x, public))
        assert not np.allclose(descent.answers()[OWN], descent.answers()[PUBLIC])

    def test_the_model_of_attackers_at_the_anchor_is_the_public_model(self, dealt: DealtRecords) -> None:
        descent = AttackedDescent("confined-anchored", dealt, ActiveMembershipSettings())
        descent.train()
        assert np.allclose(descent.answers()[OWN], descent.answers()[PUBLIC])

    def test_the_contribution_of_attackers_raises_the_loss_of_their_targets(self, dealt: DealtRecords) -> None:
        descent = AttackedDescent("fedavg", dealt, ActiveMembershipSettings())
        (model,) = descent.honest_models(1)
        targets = dealt.targets
        true, decoys = (loss_and_gradient(targets.x, y, model)[1] for y in (targets.y, dealt.decoys))
        sent = crafted(true, decoys, 2.0)
        assert np.allclose(flat(sent), 2 * (flat(decoys) - flat(true)))
        moved = [w - 0.01 * s for w, s in zip(model, sent, strict=True)]
        assert loss_and_gradient(targets.x, targets.y, moved)[0] > loss_and_gradient(targets.x, targets.y, model)[0]

    def test_the_round_of_an_attack_steps_along_the_mean_of_all_contributions(self, dealt: DealtRecords) -> None:
        descent = AttackedDescent("confined", dealt, ActiveMembershipSettings(step=0.5))
        descent.train()
        descent.prepare_attack(descent.trained_state())
        before, sent = flat(descent._honest.descent.displacement), descent.contributions(0.7)
        descent.attack(0.7)
        step = flat(descent._honest.descent.displacement) - before
        assert np.allclose(step, -0.5 * np.mean([flat(one) for one in sent], axis=0), atol=1e-6)

    @pytest.mark.parametrize("method", METHODS)
    def test_with_strength_0_attackers_send_zeros(self, dealt: DealtRecords, method: MethodName) -> None:
        descent = AttackedDescent(method, dealt, ActiveMembershipSettings())
        descent.train()
        trained = descent.trained_state()
        told = []
        for decoys in (dealt.decoys, dealt.targets.y):
            descent.dealt = replace(dealt, decoys=decoys)
            descent.prepare_attack(trained)
            descent.attack(0.0)
            told.append(descent.answers())
            assert all((flat(sent) == 0).all() for sent in descent.contributions(0.0)[dealt.participants :])
        for view, found in told[0].items():
            assert (found == told[1][view]).all()

    def test_attacks_from_one_state_are_independent(self, dealt: DealtRecords) -> None:
        settings = ActiveMembershipSettings(threshold=0.3, patience=20, rounds=6)
        alone = play("ditto", dealt, settings, (0.5,), looks=2)
        second = play("ditto", dealt, settings, (2.0, 0.5), looks=2)
        assert alone.courses[0] == second.courses[1]
        assert alone.began == second.began

    def test_training_on_targets_makes_members_of_all_of_them(self, dealt: DealtRecords) -> None:
        def called_members(recipe: ActiveMembershipSettings) -> float:
            descent = AttackedDescent("fedavg", dealt, recipe)
            for _ in range(300):
                descent.train(1.0)
            return infer(dealt.task, descent.answers()[COMMON], dealt.targets.y, dealt.members).false_alarms

        assert called_members(ActiveMembershipSettings(train_on_targets=True)) == 1
        assert called_members(ActiveMembershipSettings()) < 1


class TestLossCheck:
    def test_the_rule_of_the_papers_code_also_refuses_harmful_steps(self) -> None:
        dealt = DealtRecords.deal("digits", 4, 1, 20, seed=3, tests=100)
        settings = ActiveMembershipSettings(check="history", threshold=0.7, patience=60, rounds=30)
        watched, attacked = play("confined-checked", dealt, settings, (0.0, 20.0), looks=1).courses
        assert attacked.refused > watched.refused

    def test_the_loss_check_accepts_clean_steps_and_refuses_poison(self) -> None:
        dealt = DealtRecords.deal("digits", 4, 1, 20, seed=3, tests=100)
        checked, bare = (
            play(method, dealt, ActiveMembershipSettings(threshold=0.7, patience=60, rounds=20), (0.0, 20.0), looks=1)
            for method in ("confined-checked", "confined")
        )
        watched, attacked = checked.courses
        assert checked.refused_before < 0.1 > watched.refused
        assert attacked.refused > 0.9
        assert bare.courses[1].refused == 0
        assert attacked.last.utility == checked.before  # no model changes if all steps are refused
        assert bare.courses[1].last.utility.mean < bare.before.mean - 0.2


def success(aucs: list[float], targets: int = 200) -> InferenceSuccess:
    return InferenceSuccess([replace(EVEN, auc=auc, right=targets // 2, targets=targets) for auc in aucs])


EVEN = infer(Classification(10), np.eye(2)[[0, 1, 0, 1]], np.array([0, 0, 0, 0]), np.array([True, True, False, False]))


class TestVerdict:
    def test_only_an_area_beyond_chance_beats_guessing(self) -> None:
        assert EVEN.accuracy == 0.5
        assert not success([0.51, 0.5, 0.53]).beats_guess
        assert success([0.6, 0.62, 0.61]).beats_guess

    def test_the_outcome_follows_from_the_numbers_and_never_claims_elimination(self, dealt: DealtRecords) -> None:
        trial = play(
            "fedavg", dealt, ActiveMembershipSettings(threshold=0.3, patience=20, rounds=4), (0.0, 0.5), looks=1
        )

        def summary(*aucs: float) -> MethodSummary:
            def with_area(auc: float) -> MethodTrial:
                watched, attacked = (
                    replace(course, looks=[replace(course.last, inferred={COMMON: success([area]).found[0]})])
                    for course, area in zip(trial.courses, (0.5, auc), strict=True)
                )
                return replace(trial, courses=[watched, attacked])

            return MethodSummary("confined", [with_area(auc) for auc in aucs])

        baseline, nothing = summary(0.8, 0.82, 0.81), summary(0.5, 0.51, 0.49)
        assert outcome_against(nothing, baseline) is Effect.REDUCED
        assert outcome_against(summary(0.6, 0.61, 0.62), baseline) is Effect.REDUCED
        assert outcome_against(summary(0.9, 0.8, 0.85), baseline) is Effect.NOT_ELIMINATED
        assert outcome_against(baseline, baseline) is Effect.NOT_ELIMINATED
        assert outcome_against(nothing, nothing) is Effect.NOT_SHOWN
        assert outcome_against(baseline, nothing) is Effect.NOT_ELIMINATED

    def test_with_one_common_model_utility_has_no_spread(self, dealt: DealtRecords) -> None:
        descent = AttackedDescent("fedavg", dealt, ActiveMembershipSettings())
        found = HonestUtility.of(descent)
        assert found.mean == found.worst
        assert found.spread == 0


def test_a_secure_session_reveals_the_mean_that_the_attack_uses() -> None:
    attack = ActiveMembership(participants=HONEST, malicious=MALICIOUS, examples=EXAMPLES)
    assert 0 < attack.secure_error(3.0) < 1e-9


def test_a_model_that_saw_no_target_is_scored_as_any_other(dealt: DealtRecords) -> None:
    found = infer_without_targets(dealt, ActiveMembershipSettings(rounds=50))
    assert found.targets == 24
    assert found == infer_without_targets(dealt, ActiveMembershipSettings(rounds=50))


class TestCommand:
    def test_a_small_attack_is_reported_as_json_and_on_a_page(self, tmp_path: Path) -> None:
        page = tmp_path / "attack.html"
        small = ["--participants", "3", "--examples", "20", "--rounds", "12", "--trials", "2", "--threshold", "0.6"]
        told = record_of("attack", "active-membership", *small, "--html", page)
        assert list(told)[:2] == ["attack", "threat_model"]
        assert set(told["methods"]) == set(METHODS)
        assert told["tuning"][str(told["strength"])] == max(told["tuning"].values())
        fedavg, ditto = (told["methods"][name] for name in ("fedavg", "ditto"))
        for doing in "passive", "active":
            assert fedavg[doing]["inferred_from"] == ditto[doing]["inferred_from"]  # the common model is the same
        assert told["no_information"]["targets"] == 2 * 2 * 20
        assert len(told["card"]) == len(METHODS)
        assert "eliminated" not in {line["outcome"] for line in told["card"]}
        assert "public displacement" in page.read_text()

    def test_an_attack_of_strength_0_gives_no_verdict(self) -> None:
        attack = ActiveMembership(
            participants=3, examples=20, rounds=3, trials=1, threshold=0.3, strength=0.0, patience=20
        )
        finding = run_attack(attack, lambda _doing, _share: None)
        assert "says nothing about any defence" in finding.headline
        assert finding.level is Level.NOTHING
        assert {line.outcome for line in finding.card} == {Effect.NOT_SHOWN}

    @pytest.mark.parametrize(
        "wrong",
        [
            {"check": "nothing"},
            {"strength": -1.0},
            {"strength": float("nan")},
            {"threshold": 2.0},
            {"trials": 0},
            {"cover": -1},
        ],
    )
    def test_impossible_settings_are_refused_before_training(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ConfigError):
            ActiveMembership(**wrong)

    def test_presets_depend_on_the_data_and_can_be_overridden(self) -> None:
        attack = ActiveMembership.of("mnist", examples=7, threshold=None)
        assert attack.examples == 7
        assert attack.threshold == PRESETS["mnist"].threshold
        assert attack.options == {"unit": True}
        assert (ActiveMembership().examples, ActiveMembership().rounds) == (
            PRESETS["digits"].examples,
            PRESETS["digits"].rounds,
        )
