"""Comparisons of runs and baselines: what is compared, what is kept apart, and what is refused."""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

pytest.importorskip("torch", reason="training needs coterie[train]")
from torch import nn

import coterie
from coterie.cli import app
from coterie.errors import ConfigError, InputError
from coterie.reports.charts import shorten, spread
from coterie.reports.notebook import round_ticks
from coterie.runs.comparison.baselines import read_baseline
from coterie.runs.comparison.comparison import compare
from coterie.runs.comparison.entries import DataIdentity
from coterie.runs.engine.run import RunResult, TrainingRun
from coterie.runs.settings.toml import make_config
from coterie.training import Metric

HOSTILE = '<script>alert(1)<\\script> "&amp;[red]'
SIZES = {"clients.count": 12, "cohort.size": 6, "cohort.privacy": 3, "rounds": 3, "training.epochs": 1}
EVERYBODY = {"availability.kind": "equal", "availability.dropout": 0.0, "faults.dropout": 0.0}
SMALL = {"model.name": "softmax-regression", **SIZES, **EVERYBODY}
CHANGES: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "noisy": {"noise.kind": "discrete-gaussian", "noise.multiplier": 1.0},
    "plain": {"aggregation.kind": "plain", "rounds": 2},
    "seed": {"seed": 5},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunResult]:
    folder = tmp_path_factory.mktemp("runs")
    return {
        name: TrainingRun.begin(folder / name, make_config({**SMALL, **changes})).play()
        for name, changes in CHANGES.items()
    }


@pytest.fixture(scope="module")
def folder(runs: dict[str, RunResult]) -> Path:
    return runs["fedavg"].folder.parent


def count_misses(outputs: Any, labels: Any) -> float:  # noqa: ANN401
    return float((outputs.argmax(axis=1) != labels).sum())


def write_csv(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_the_table_shows_the_results_of_the_runs(runs: dict[str, RunResult], folder: Path, tmp_path: Path) -> None:
    baseline = write_csv(tmp_path / "flower.csv", "round,accuracy\n1,0.1\n2,0.95\n3,0.9\n")
    found = compare([folder / "fedavg", folder / "noisy", folder / "plain", baseline], target=0.95).as_dict()
    (group,) = found["groups"]
    assert (group["metric"], group["data"], group["larger_is_better"]) == ("accuracy", "digits", True)
    fedavg, noisy, plain, flower = group["runs"]
    for entry, run in zip((fedavg, noisy, plain), (runs["fedavg"], runs["noisy"], runs["plain"]), strict=True):
        summary = run.summary
        assert entry["algorithm"] == "fedavg"
        assert (entry["rounds"], entry["final"], entry["best"]) == (
            summary.rounds,
            summary.accuracy,
            summary.best_accuracy,
        )
        assert (entry["promised"], entry["strong_privacy"], entry["kept"], entry["epsilon"]) == (
            summary.promised,
            summary.strong_privacy,
            summary.kept,
            summary.epsilon,
        )
        assert entry["bytes"] == sum(record.upload_bytes + record.download_bytes for record in run.records)
        assert entry["seconds"] == summary.seconds
        assert entry["rounds_to_target"] is None
    assert noisy["epsilon"] > 0
    assert (plain["promised"], plain["kept"]) == (1, False)
    assert (flower["final"], flower["best"], flower["rounds_to_target"], flower["kind"]) == (0.9, 0.95, 2, "baseline")


def test_a_target_is_reached_in_the_first_round_that_is_as_good(tmp_path: Path) -> None:
    rising = write_csv(tmp_path / "a.csv", "round,accuracy\n1,0.2\n4,0.6\n6,0.5\n9,0.8\n")
    falling = write_csv(tmp_path / "b.csv", "round,loss\n1,2\n4,0.6\n6,0.9\n9,0.1\n")
    assert compare([rising], target=0.6).entries[0].rounds_to(0.6) == 4
    (entry,) = compare([falling], target=0.5).entries
    assert (entry.rounds_to(0.6), entry.rounds_to(0.5), entry.rounds_to(0.05)) == (4, 9, None)
    assert (entry.best, entry.final) == (0.1, 0.1)


def test_runs_with_other_metrics_are_kept_apart(folder: Path, tmp_path: Path) -> None:
    losses = write_csv(tmp_path / "losses.csv", "round,test_loss\n1,2.0\n2,1.0\n")
    found = compare([folder / "fedavg", losses])
    assert [group.score.column for group in found.groups] == ["accuracy", "test_loss"]
    assert "by different metrics" in found.findings.about
    together = compare([folder / "fedavg", losses], metric="test_loss")
    assert [len(group.entries) for group in together.groups] == [2]


def test_another_seed_divides_the_same_data(folder: Path) -> None:
    assert len(compare([folder / "fedavg", folder / "seed"]).groups) == 1


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("digits", "a", "1"), ("digits", "a", "1"), True),
        (("digits", "a", "1"), ("digits", "a", "2"), False),  # the same settings, and the files differ
        (("digits", "a", "1"), ("digits", "b", "2"), True),  # divided in another way, so the digest says nothing
        (("digits", "a", ""), ("digits", "a", "2"), True),  # an old folder has no digest
        (("digits", "a", "1"), ("faces", "a", "1"), False),
    ],
)
def test_equal_test_examples_are_recognised(one: tuple[str, str, str], other: tuple[str, str, str], same: bool) -> None:
    first, second = (DataIdentity("data", *parts) for parts in (one, other))
    assert first.same_tests(second) is second.same_tests(first) is same


def test_runs_of_programs_on_data_with_the_same_digest_are_in_one_group(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 3)).astype(np.float32), rng.integers(0, 2, 40)

    def run(name: str, shift: float) -> RunResult:
        return coterie.train(
            nn.Linear(3, 2),
            (x + shift, y),
            (x, y),
            clients=6,
            cohort=6,
            rounds=1,
            metric={"misses": Metric(count_misses, larger=False)},
            out=tmp_path / name,
            progress=False,
        )

    first, same, other = run("first", 0.0), run("same", 0.0), run("other", 1.0)
    assert [len(group.entries) for group in coterie.compare([first, same]).groups] == [2]
    apart = coterie.compare([first, same, other])
    assert [len(group.entries) for group in apart.groups] == [2, 1]
    assert "on different data" in apart.findings.about
    assert len(coterie.compare([first, other], same_data=True).groups) == 1
    (group,) = coterie.compare([first], metric="misses").groups
    assert (group.score.column, group.score.larger, group.score.share) == ("misses", False, False)
    (entry,) = group.entries
    assert entry.points == tuple((one.round, msgspec.structs.asdict(one)["misses"]) for one in first.records)


def test_sources_are_folders_results_files_and_folders_of_runs(runs: dict[str, RunResult], folder: Path) -> None:
    assert [entry.name for entry in compare([runs["fedavg"], str(folder / "noisy")]).entries] == ["fedavg", "noisy"]
    assert sorted(entry.name for entry in compare([folder]).entries) == sorted(runs)
    assert [entry.name for entry in compare({"ours": folder / "fedavg"}).entries] == ["ours"]
    twice = compare([folder / "fedavg", folder / "fedavg"])
    assert [entry.name for entry in twice.entries] == ["fedavg", "fedavg (2)"]


def test_names_show_as_much_of_a_path_as_distinguishes_them(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "fedavg", tmp_path / "second" / "fedavg")
    names = [entry.name for entry in compare([folder / "fedavg", tmp_path / "second" / "fedavg"]).entries]
    assert names == [f"{folder.name}/fedavg", "second/fedavg"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty: expected two columns, the round and the score"),
        ("\n\n", "is empty"),
        ("a,b,c\n1,2,3\n", "such as round,accuracy. It has: a, b, c"),
        ("1,2,3\n", "It has: 3 columns without headings"),
        ("round,accuracy\n", "has no round with a score"),
        ("round,accuracy\n1,\n", "has no round with a score"),
        ("round,accuracy\n1,0.5,3\n", "line 2: 3 values where 2 are expected"),
        ("round,accuracy\none,0.5\n", "line 2: expected a whole number and a score, got 'one' and '0.5'"),
        ("round,accuracy\n1.5,0.5\n", "line 2: expected a whole number"),
        ("round,accuracy\n1,nan\n", "line 2: expected a whole number and a score"),
        ("round,accuracy\n1,0.5\n1,0.6\n", "line 3: round 1 comes after round 1; sort the rounds"),
        ("round,accuracy\n1,53.5\n", "accuracy is a share from 0 to 1, and the file has 53.5; divide percentages"),
        ("round,accuracy\n1,-0.1\n2,0.5\n", "accuracy is a share from 0 to 1, and the file has -0.1"),
        ('round,accuracy\n1,"0.5\n', "is not CSV"),
    ],
)
def test_baselines_that_cannot_be_read_are_refused_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        read_baseline(write_csv(tmp_path / "baseline.csv", text))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "heading"),
    [
        ("round,accuracy\n1,0.5\n2,0.6\n", "accuracy"),
        ("\ufeffround;accuracy\r\n1;0.5\r\n2;0.6\r\n", "accuracy"),
        ("accuracy\tround\n0.5\t1\n0.6\t2\n", "accuracy"),
        ("1,0.5\n2,0.6\n", ""),
        ("step,flower\n1,0.5\n2,0.6\n", "flower"),
        ("round,outcome,accuracy,test_loss\n1,x,0.5,1\n2,x,0.6,2\n3,x,,\n", "accuracy"),
    ],
)
def test_baselines_are_two_columns_whatever_they_are_called(text: str, heading: str, tmp_path: Path) -> None:
    path = tmp_path / "baseline.csv"
    path.write_bytes(text.encode())
    found = read_baseline(path)
    assert (found.points, found.heading) == (((1, 0.5), (2, 0.6)), heading)


def test_the_records_of_a_run_can_be_read_as_a_baseline(runs: dict[str, RunResult], folder: Path) -> None:
    (run, table) = compare([folder / "fedavg", folder / "fedavg" / "metrics.csv"]).entries
    assert table.points == run.points


def test_incomparable_sources_are_refused(folder: Path, tmp_path: Path) -> None:
    odd = write_csv(tmp_path / "odd.csv", "round,flower\n1,0.5\n")
    losses = write_csv(tmp_path / "losses.csv", "round,loss\n1,0.5\n")
    refused: list[tuple[type[Exception], str, Any, dict[str, Any]]] = [
        (ConfigError, "nothing to compare", [], {}),
        (InputError, "there is no file or folder", [tmp_path / "nowhere"], {}),
        (InputError, "is not the folder of a run, and has none in it", [tmp_path], {}),
        (InputError, "it is not known what its column 'flower' measures", [odd], {}),
        (InputError, "it is not known what its column 'flower' measures", [folder / "fedavg", losses, odd], {}),
        (ConfigError, "metric is one of accuracy, test_loss", [losses], {"metric": "f1"}),
        (ConfigError, "did not record 'top3_accuracy'", [folder / "fedavg"], {"metric": "top3_accuracy"}),
        (ConfigError, "target is a score such as 0.9, not nan", [folder / "fedavg"], {"target": float("nan")}),
        (ConfigError, "target is a share from 0 to 1 for accuracy", [folder / "fedavg"], {"target": 90}),
        (ConfigError, "not int", [3], {}),
    ]
    for kind, said, sources, options in refused:
        with pytest.raises(kind, match=said):
            compare(sources, **options)


def test_a_run_that_did_not_begin_has_no_score(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "fedavg", tmp_path / "early")
    (tmp_path / "early" / "metrics.jsonl").unlink()
    found = compare([tmp_path / "early", folder / "fedavg"])
    assert found.entries[0].final is None
    assert "No score was recorded for early" in " ".join(found.findings.remarks)
    assert "Not finished: early" in " ".join(found.findings.remarks)
    assert str(found).splitlines()[0] == found.findings.headline
    assert found._repr_html_()
    assert found.page()


def test_the_command_prints_a_table_and_curves_and_writes_a_page(folder: Path, tmp_path: Path) -> None:
    baseline = write_csv(tmp_path / "flower.csv", "round,accuracy\n1,0.1\n3,0.9\n")
    arguments = ["compare", str(folder / "fedavg"), str(baseline), "--target", "0.8"]
    shown = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "page.html")], env={"COLUMNS": "160"})
    assert shown.exit_code == 0, shown.output
    assert "rounds to 80.0%" in shown.stdout
    assert "▁" in shown.stdout
    assert "█  90.0%" in shown.stdout
    page = (tmp_path / "page.html").read_text()
    assert "Accuracy on digits" in page
    assert '"text":"flower.csv"' in page  # written at the end of its line
    values = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert values == compare([folder / "fedavg", baseline], target=0.8).as_dict()


@pytest.fixture(scope="module")
def personal(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunResult]:
    """Runs with and without models of single clients, whose data differ; some keep test examples of their own."""
    folder = tmp_path_factory.mktemp("personal")
    shards = {"partition.kind": "label-shards", "rounds": 2}
    changes: dict[str, dict[str, Any]] = {
        f"{algorithm}-{holdout}": {"training.algorithm": algorithm, "clients.holdout": holdout}
        for algorithm in ("fedavg", "ditto")
        for holdout in (0.0, 0.3)
    }
    return {
        name: TrainingRun.begin(folder / name, make_config({**SMALL, **shards, **change})).play()
        for name, change in changes.items()
    }


def test_models_of_clients_are_compared_on_the_data_of_their_owners(
    personal: dict[str, RunResult], tmp_path: Path
) -> None:
    """The headline of a run with such models is their score on their owners' data; the curve is on everybody's."""
    baseline = write_csv(tmp_path / "flower.csv", "round,accuracy\n1,0.1\n2,0.99\n")
    ditto, fedavg = personal["ditto-0.0"], personal["fedavg-0.0"]
    found = compare([ditto, fedavg, baseline])
    (group,) = found.groups
    assert group.by_owners
    own, common, elsewhere = group.entries
    assert own.owners_score == pytest.approx(ditto.summary.owners_score)
    assert own.final == ditto.summary.accuracy
    assert own.owners_score is not None
    assert own.final is not None
    assert own.owners_score > own.final + 0.1
    scores = fedavg.summary.client_scores
    assert scores is not None
    assert common.owners_score == pytest.approx(scores.mean(fedavg.summary.yardstick))
    assert elsewhere.owners_score is None
    first, second = found.findings.headlines
    best = max(own, common, key=lambda entry: entry.owners_score or 0.0)
    assert f"each client's own test examples: {best.name} ends with {best.owners_score:.1%}" in str(first)
    assert "the test examples of everybody: flower.csv ends with 99.0%" in str(second)
    remarks = " ".join(found.findings.remarks)
    assert f"of {own.name}: the mean over the clients' own models on the test examples of everybody" in remarks
    assert "on the test examples of everybody" in found.findings.plots[0].caption
    values = [entry["final_on_own_data"] for entry in found.as_dict()["groups"][0]["runs"]]
    assert values == [own.owners_score, common.owners_score, None]
    shown = CliRunner().invoke(app, ["compare", str(ditto.folder), str(fedavg.folder)], env={"COLUMNS": "160"})
    assert "accuracy on clients' data" in shown.stdout


def test_scores_of_rounds_on_owners_data_are_not_ranked_with_those_on_everybodys(
    personal: dict[str, RunResult],
) -> None:
    """Where clients keep test examples, the rounds of a run with models of clients are scored on these."""
    found = compare([personal["ditto-0.3"], personal["fedavg-0.3"]])
    own, common = found.entries
    assert own.judged_by_owners
    assert not common.judged_by_owners
    _, second = found.findings.headlines
    assert f"everybody: {common.name} ends with {common.final:.1%} after 2 rounds." in str(second)
    assert f"of {own.name}: the clients' own models, each on its owner's test examples" in " ".join(
        found.findings.remarks
    )
    assert f"that of {own.name} on those of each model's owner" in found.findings.plots[0].caption


def test_without_models_of_clients_owners_are_not_mentioned(personal: dict[str, RunResult]) -> None:
    found = compare([personal["fedavg-0.0"]])
    assert "own" not in " ".join(map(str, [*found.findings.headlines, *found.findings.remarks]))
    alone = compare([personal["ditto-0.3"]])
    assert not alone.groups[0].by_owners  # there is one number, and the remark says which models it is of
    assert "is the mean over the clients' own models" in " ".join(alone.findings.remarks)


def test_a_table_of_clients_that_is_damaged_is_refused(personal: dict[str, RunResult], tmp_path: Path) -> None:
    shutil.copytree(personal["ditto-0.0"].folder, tmp_path / "run")
    (tmp_path / "run" / "clients.csv").write_text("client,own_loss,own_accuracy\na,1.0,many\n")
    with pytest.raises(InputError, match=r"clients\.csv is not the table of clients that a run writes"):
        compare([tmp_path / "run"])
    (tmp_path / "run" / "clients.csv").unlink()
    assert compare([tmp_path / "run"]).entries[0].owners_score is None


@pytest.mark.parametrize("columns", [32, 40, 80, 200])
def test_no_word_of_the_table_is_broken_in_a_narrow_terminal(columns: int, folder: Path) -> None:
    shown = CliRunner().invoke(app, ["compare", str(folder)], env={"COLUMNS": str(columns)})
    assert shown.exit_code == 0
    for word in ("algorithm", "fedavg", "promised", "traffic"):
        assert word in shown.stdout
    assert "…" not in shown.stdout.partition("•")[0]


def test_hostile_names_stay_text(folder: Path, tmp_path: Path) -> None:
    baseline = write_csv(tmp_path / f"{HOSTILE}.csv", "round,accuracy\n1,0.1\n3,0.9\n")
    found = compare([folder / "fedavg", baseline])
    for shown in (found._repr_html_(), found.page()):
        assert "<script>alert" not in shown
        assert "&lt;script&gt;alert" in shown
    printed = CliRunner().invoke(app, ["compare", str(folder / "fedavg"), str(baseline)], env={"COLUMNS": "200"})
    assert "[red]" in printed.stdout


@given(st.lists(st.floats(-1e3, 1e3), max_size=12), st.floats(0.5, 20))
def test_labels_are_moved_apart_and_keep_their_order(places: list[float], gap: float) -> None:
    moved = spread(places, gap)
    order = sorted(range(len(places)), key=places.__getitem__)
    assert all(moved[high] - moved[low] >= gap - 1e-6 for low, high in pairwise(order))
    if places:
        assert sum(moved) == pytest.approx(sum(places), abs=1e-6)
    if all(places[high] - places[low] >= gap for low, high in pairwise(order)):
        assert moved == pytest.approx(places)


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_ticks_are_few_and_hold_all_values(low: float, span: float) -> None:
    ticks = round_ticks(low, low + span)
    assert 2 <= len(ticks) <= 8
    room = 1e-6 * max(1.0, abs(low), span)
    assert ticks[0] <= low + room
    assert ticks[-1] >= low + span - room


@given(st.text(max_size=60), st.integers(3, 30))
def test_long_names_are_shortened_in_the_middle(name: str, limit: int) -> None:
    short = shorten(name, limit)
    assert len(short) <= limit
    assert short == name or (short[0] == name[0] and short[-1] == name[-1])
