"""Runs with every line of CGD's Algorithm 1, with late participants, and with a network that drops packets."""

import json
from html import unescape
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs coterie[train]")
from tests.integration.test_confined_run import play
from tests.support.interruptions import Interrupt, same_state

from coterie.confined.claims import sound_epsilon
from coterie.errors import ConfigError
from coterie.runs.engine.build import build_run
from coterie.runs.engine.federation import find_federation
from coterie.runs.engine.run import RunResult, TrainingRun
from coterie.runs.settings.toml import load_config
from coterie.runs.storage.folder import RunFolder

ALGORITHM_1 = (
    *("confined.clip=1.0", "noise.kind=skellam", "noise.sigma=0.3", "confined.check.threshold=0.01"),
    'confined.lambdas={"client-01" = 0.05, "client-02" = 0.2}',
)
LATE = ("faults.late=0.4", "rounds=10", "confined.check.kind=none")


def column(result: RunResult, name: str) -> list[float | None]:
    return [getattr(record, name) for record in result.records]


def said(folder: Path) -> str:
    return unescape(" ".join((folder / "report.html").read_text().split()))


def test_every_line_of_algorithm_1_in_one_run(tmp_path: Path) -> None:
    """A clip, each participant's sigma, a fraction drawn once, a threshold, and lambdas of single participants."""
    result = play(tmp_path / "run", *ALGORITHM_1, "rounds=3")
    summary = result.summary
    assert all(record.completed and len(record.aggregated) == 6 for record in result.records)
    assert summary.sigma == pytest.approx(0.3, rel=1e-3)
    assert summary.noise_shares == 2  # the fewest clients in a sum: cohort.minimum, none of whom colludes
    assert summary.epsilon is not None
    assert summary.example_epsilon is not None
    assert summary.example_epsilon > summary.epsilon
    # Rounding, and a theorem for divergences of integer orders, cost a little more than Gaussian noise would.
    assert 1 <= summary.example_epsilon / sound_epsilon(0.3, 3, 1e-5, honest=2) < 1.15
    assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])["example_epsilon"] == (
        summary.example_epsilon
    )
    page = said(tmp_path / "run")
    assert f"For one example replaced by another, epsilon is {summary.example_epsilon:.3g}" in page
    assert "Each client adds noise of deviation 0.3 to an entry; the noise of 2 honest clients in each sum" in page
    assert "together 0.424 or 0.424 times noise.clip_norm" in page
    theorem, corollary = summary.extras["theorem_epsilon"], summary.extras["claimed_epsilon"]
    assert theorem is not None
    assert corollary == pytest.approx(theorem / 2)
    assert f"epsilon = {theorem:.3g} by Theorem 1 or {corollary:.3g} by Corollary 1 (C = 0.5; for IID data only" in page


def test_sigma_of_each_client_is_another_way_to_write_the_multiplier_of_the_sum() -> None:
    def built(*settings: str) -> tuple[float, float | None, float | None]:
        config = load_config(None, ["clients.count=12", "cohort.minimum=4", "noise.kind=skellam", *settings])
        run = build_run(config, find_federation(config))
        return run.sigma, run.epsilon(5), run.example_epsilon(5)

    by_sum, by_client = built("noise.multiplier=0.8"), built("noise.sigma=0.4")
    assert by_client == pytest.approx(by_sum)
    assert by_sum[0] == pytest.approx(0.4, rel=1e-3)
    with pytest.raises(ConfigError, match=r"noise\.sigma"):
        built("noise.sigma=-0.1")


def test_a_participants_own_lambda_scales_its_start_and_no_other() -> None:
    def starts(*settings: str) -> dict[str, np.ndarray]:
        config = load_config(None, ["training.algorithm=confined", "clients.count=12", *settings])
        strategy = build_run(config, find_federation(config)).strategy
        return {name: model[0] for name, model in strategy.models().items()}

    common, own = starts(), starts('confined.lambdas={"client-02" = 0.3}')
    assert np.allclose(own["client-02"], 3 * common["client-02"], rtol=1e-5)
    assert all((own[name] == common[name]).all() for name in common if name != "client-02")
    with pytest.raises(ConfigError, match=r"confined\.lambdas: there is no participant client-99"):
        starts('confined.lambdas={"client-99" = 0.3}')


# Late participants.


def test_late_gradients_are_summed_up_to_the_bound_and_refused_beyond(tmp_path: Path) -> None:
    unbounded = play(tmp_path / "all", *LATE, "confined.late_bound=-1")
    bounded = play(tmp_path / "some", *LATE, "confined.late_bound=1")
    refused = play(tmp_path / "none", *LATE)
    late = {run.folder.name: run.summary.extras for run in (unbounded, bounded, refused)}
    assert (late["all"]["late"] or 0) > (late["some"]["late"] or 0) > 0
    assert (late["all"]["oldest"] or 0) > 1
    assert late["some"]["oldest"] == 1
    assert late["all"]["late_refused"] == late["none"]["late"] == 0
    assert (late["none"]["late_refused"] or 0) > (late["some"]["late_refused"] or 0) > 0
    assert "Gradients of older iterates, of any age: " in said(tmp_path / "all")
    assert "up to confined.late_bound = 1 old: " in said(tmp_path / "some")
    assert "were summed, the oldest after 1 iteration, and " in said(tmp_path / "some")
    # A late participant whose gradient is ready answers in time, so more contributions get through.
    assert unbounded.summary.aggregated > refused.summary.aggregated
    # Only whole circles are summed, with gradients of older iterates as with others.
    for run in (unbounded, bounded):
        assert run.summary.kept


def test_runs_without_late_clients_do_not_change(tmp_path: Path) -> None:
    play(tmp_path / "with", "confined.late_bound=5", "rounds=3")
    play(tmp_path / "without", "rounds=3")
    assert same_state(tmp_path / "with", tmp_path / "without")


@pytest.mark.parametrize("addition", ["secure", "additive"])
def test_a_run_with_late_participants_resumes_to_the_bit(tmp_path: Path, addition: str) -> None:
    settings = (
        *LATE,
        *("confined.late_bound=3", 'faults.victims=["client-03"]', "faults.victim_drops=0.5"),
        *(f"confined.addition={addition}", "faults.late=0.1"),
    )
    play(tmp_path / "whole", *settings)
    config = RunFolder.open(tmp_path / "whole").config()
    interrupt = Interrupt(after=5)
    interrupt.run = TrainingRun.begin(tmp_path / "parts", config, observers=[interrupt])
    interrupt.run.play()
    assert TrainingRun.open(RunFolder.open(tmp_path / "parts")).play().summary.finished
    assert same_state(tmp_path / "whole", tmp_path / "parts")


# The fairness threat: a network adversary drops the packets of chosen victims.


def test_packet_drops_keep_a_victim_and_its_circle_out_of_all_sums_and_the_sums_from_the_victim(
    tmp_path: Path,
) -> None:
    victim = "client-03"
    result = play(tmp_path / "run", f'faults.victims=["{victim}"]', "confined.late_bound=-1", "rounds=8")
    clean = play(tmp_path / "clean", "rounds=8")
    assert any(victim in record.aggregated for record in clean.records)
    assert not any(victim in record.aggregated for record in result.records)
    # Circles are summed whole or not at all, so the victim's neighbour is not summed either.
    never = set(RunFolder.open(tmp_path / "run").config().faults.victims)
    seen = {name for record in result.records for name in record.aggregated}
    assert len({f"client-{number:02}" for number in range(1, 13)} - seen) == 2 > len(never)
    # The victim still has its first model, and the others have learnt.
    assert (result.summary.extras["victims"] or 0) < (result.summary.accuracy or 0) - 0.1
    assert "dropped the packets of 1 client in 100% of the rounds; the victims' models have" in said(tmp_path / "run")
    assert clean.summary.extras["victims"] is None


def test_a_victim_that_is_reached_again_catches_up(tmp_path: Path) -> None:
    settings = ('faults.victims=["client-03"]', "faults.victim_drops=0.5", "confined.check.kind=none", "rounds=12")
    result = play(tmp_path / "run", *settings)
    scores = [score for score in column(result, "victims") if score is not None]
    assert scores[0] < 0.3 < 0.7 < scores[-1]
    assert any(victim == before for before, victim in pairwise(scores))  # while its packets are dropped
    assert any("client-03" in record.aggregated for record in result.records)
    # Never reached again, it would have its start; caught up, it has its start plus the displacement.
    assert np.isclose(scores[-1], result.summary.accuracy or 0, atol=0.15)
    with pytest.raises(ConfigError, match=r"faults\.victims: there is no client nobody"):
        play(tmp_path / "wrong", 'faults.victims=["nobody"]')
