"""Runs of confined descent whose clients are groups of members with different columns."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.records import as_options, record_of, words_of

pytest.importorskip("torch", reason="training needs coterie[train]")
import torch
from tests.support.interruptions import crash_before_checkpoint, same_state, saved_state
from typer.testing import CliRunner

import coterie
from coterie.cli import app
from coterie.confined.claims import sound_epsilon
from coterie.errors import ConfigError, TrainingError
from coterie.runs.engine.build import build_run
from coterie.runs.engine.federation import find_federation
from coterie.runs.engine.run import RunResult, TrainingRun
from coterie.runs.settings.toml import load_config
from coterie.runs.storage.folder import RunFolder
from coterie.training.models import build

SMALL = (
    *("training.algorithm=confined", "rounds=5", "clients.count=4", "cohort.size=4", "training.evaluate_every=1"),
    *("training.executor=processes", "training.workers=0", "aggregation.threads=1"),
    *("availability.kind=equal", "availability.dropout=0.0", "faults.dropout=0.0"),
)
GRID = (*SMALL, "confined.grid.members=4")


def play(folder: Path, *overrides: str) -> RunResult:
    return TrainingRun.begin(folder, load_config(None, [*overrides])).play()


def distance(one: Path, other: Path) -> float:
    first, second = saved_state(one), saved_state(other)
    keys = [key for key in first if key.startswith("displacement")]
    return max(float(np.abs(first[key] - second[key]).max()) for key in keys)


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    folder = tmp_path_factory.mktemp("grid") / "run"
    return folder, play(folder, *GRID)


def test_a_grid_learns_what_the_unsplit_run_learns(grid: tuple[Path, RunResult], tmp_path: Path) -> None:
    """With the same starts and without active clipping, the split changes only the rounding."""
    folder, _ = grid
    loose = ("confined.clip=1000", "aggregation.clip=10", "aggregation.precision=30")
    play(tmp_path / "grid", *GRID, *loose)
    play(tmp_path / "unsplit", *SMALL, *loose)
    moved = max(float(np.abs(array).max()) for key, array in saved_state(tmp_path / "grid").items() if "displ" in key)
    assert distance(tmp_path / "grid", tmp_path / "unsplit") < 1e-5 < moved / 100
    assert not same_state(folder, tmp_path / "grid")  # gradients are clipped in blocks, which gives other steps


def test_secure_and_clear_sums_differ_by_rounding_alone(grid: tuple[Path, RunResult], tmp_path: Path) -> None:
    folder, _ = grid
    play(tmp_path / "clear", *GRID, "confined.grid.addition=clear")
    assert 0 < distance(folder, tmp_path / "clear") < 1e-5


def test_sums_over_groups_are_made_as_in_every_confined_run(grid: tuple[Path, RunResult], tmp_path: Path) -> None:
    folder, _ = grid
    play(tmp_path / "additive", *GRID, "confined.addition=additive")
    play(tmp_path / "workers", *GRID, "training.workers=1")
    assert same_state(folder, tmp_path / "additive")
    assert same_state(folder, tmp_path / "workers")


def test_a_killed_grid_resumes_bit_exact(
    grid: tuple[Path, RunResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums are lost in the crash; the members' memories accept the same work again."""
    folder = RunFolder.create(tmp_path / "run", load_config(None, GRID))
    crash_before_checkpoint(folder, 3, monkeypatch)
    TrainingRun.open(folder).play()
    assert same_state(grid[0], tmp_path / "run")


def test_the_report_says_what_a_group_sees(grid: tuple[Path, RunResult]) -> None:
    folder, result = grid
    page = " ".join((folder / "report.html").read_text().split())
    assert "a group of 4 members with different columns of the same rows, 16 participants in all" in page
    assert "see, for each of their examples, the sum of their parts of the first layer and the error" in page
    assert "Additive sharing hid each part from the other members." in page
    assert "Sums of several iterations determine the columns of all members" in page
    assert "4 members add parts of the first layer by additive sharing of 32-bit numbers" in page
    assert "additive sharing of 32-bit numbers" in result.summary.numbers()["protocol"]


def test_sums_in_the_clear_are_reported_as_such(tmp_path: Path) -> None:
    overrides = as_options([*GRID, "confined.grid.addition=clear", "rounds=1"])
    words = words_of("run", "--out", tmp_path / "run", *overrides)
    assert "whose parts of the first layer are added IN THE CLEAR, for measuring speed" in words
    assert "The parts were added in the clear, for measuring speed: every member saw every other's part." in words
    page = " ".join((tmp_path / "run" / "report.html").read_text().split())
    assert "added in the clear, for measuring speed: nothing is hidden" in page
    assert "in the clear" in record_of("run", "--out", tmp_path / "json", *overrides)["protocol"]


def test_two_members_hide_nothing_from_each_other(tmp_path: Path) -> None:
    play(tmp_path / "run", *SMALL, "confined.grid.members=2", "rounds=1")
    page = " ".join((tmp_path / "run" / "report.html").read_text().split())
    assert "With two members, each computes the other" in page
    assert "hid each part" not in page


def test_the_report_states_what_colluders_learn(tmp_path: Path) -> None:
    play(tmp_path / "run", *GRID, "confined.grid.colluders=2", "rounds=1")
    page = " ".join((tmp_path / "run" / "report.html").read_text().split())
    assert "If 2 collude, each sum gives them the sum of the parts of 2 honest members." in page


def test_the_norm_of_noise_must_allow_for_all_blocks(tmp_path: Path) -> None:
    """A member that adds noise knows only the norm of its own block, so the norm must allow for all blocks."""
    noise = ("noise.kind=skellam", "rounds=2", "noise.multiplier=2.0")
    with pytest.raises(ConfigError, match=r"noise.clip_norm: must be 2.2361 or more.*root of 5 blocks"):
        load_config(None, [*GRID, *noise])
    result = play(tmp_path / "run", *GRID, *noise, "noise.clip_norm=2.2361")
    assert all(record.epsilon for record in result.records)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("confined.grid.members=65",), "confined.grid.members: 65 members cannot share 64 columns"),
        (("model.name=mnist-cnn",), "model.name: the model's first layer is Conv2d"),
        (("data.name=energy", "model.name=lstm", "clients.count=10"), "4 members cannot share 1 columns"),
    ],
)
def test_models_that_cannot_be_split_are_refused_in_one_line(
    overrides: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        play(tmp_path / "run", *GRID, *overrides)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("confined.grid.colluders=3",), "confined.grid.colluders: 3 of 4 members leave 1 honest"),
        (("confined.grid.spreads=[0.1, 0.2]",), "confined.grid.spreads: must be one number for each of 4 members"),
        (("confined.grid.members=0",), "confined.grid.members"),
        (("confined.grid.bound=0.0",), "confined.grid.bound"),
    ],
)
def test_contradictory_settings_of_a_grid_are_refused(overrides: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, [*GRID, *overrides])
    assert said in str(caught.value)


def test_a_part_beyond_the_bound_ends_the_run_with_advice(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"the bound is 0.001: scale the inputs down, .* raise confined.grid.bound"):
        play(tmp_path / "run", *GRID, "confined.grid.bound=0.001")


def test_members_have_their_own_lambda(tmp_path: Path) -> None:
    result = play(tmp_path / "run", *GRID, "confined.grid.spreads=[0.0, 0.01, 0.1, 1.0]", "rounds=1")
    own, public = (result.models[name].state_dict()["1.weight"].numpy() for name in ("client-1", "displacement"))
    found = [float((own - public)[:, 16 * at : 16 * at + 16].std()) for at in range(4)]
    assert found == pytest.approx([0.0, 0.01, 0.1, 1.0], rel=0.1, abs=1e-6)


# Data in columns.


def regions(rows: int = 40) -> dict[str, tuple[dict[str, np.ndarray], np.ndarray]]:
    """Four regions, three companies with 3, 2 and 1 columns; the label depends on columns of all."""
    rng = np.random.default_rng(0)
    found = {}
    for name in ("north", "east", "south", "west"):
        widths = {"bank": 3, "shop": 2, "rail": 1}
        columns = {member: rng.normal(size=(rows, width)) for member, width in widths.items()}
        labels = (columns["bank"][:, 0] + columns["shop"][:, 1] + columns["rail"][:, 0] > 0).astype(np.int64)
        found[name] = columns, labels
    return found


def small_model(columns: int = 6) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(columns, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


def test_train_takes_columns_by_group_and_member(tmp_path: Path) -> None:
    data = regions()
    held = {name: data[name] for name in ("north", "east", "south")}
    quick = {"training.learning_rate": 1.0, "training.evaluate_every": 10, "seed": 3}
    result = coterie.train(
        small_model,
        clients=held,
        test_set=data["west"],
        algorithm="confined",
        privacy=3,
        rounds=40,
        settings=quick,
        out=tmp_path / "run",
        progress=False,
    )
    assert result.accuracy is not None
    assert result.accuracy > 0.8
    config = RunFolder.open(tmp_path / "run").config()
    assert config.confined.grid.members == 3  # type: ignore[attr-defined]
    assert config.clients.count == 3
    assert "Each of the 3 clients is a group of 3 members" in (tmp_path / "run" / "report.html").read_text()
    assert set(result.models) == {"north", "east", "south", "displacement"}


def test_columns_need_an_algorithm_that_keeps_them_apart(tmp_path: Path) -> None:
    common: dict[str, Any] = {"clients": regions(), "out": tmp_path / "run", "progress": False}
    said = "keyword arguments bank, rail, shop: .* columns of different members, training.algorithm must be confined"
    with pytest.raises(ConfigError, match=said):
        coterie.train(small_model, **common)
    with pytest.raises(ConfigError, match="must be 3, for the data has columns of bank, shop, rail, not 2"):
        coterie.train(small_model, algorithm="confined", settings={"confined.grid.members": 2}, **common)
    convolution = torch.nn.Sequential(torch.nn.Unflatten(1, (1, 6)), torch.nn.Conv1d(1, 2, 6), torch.nn.Flatten())
    with pytest.raises(ConfigError, match="is Conv1d"):
        coterie.train(convolution, algorithm="confined", **common)
    assert not (tmp_path / "run").exists()


def test_a_model_that_flattens_mixes_columns_of_different_times(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    series = {
        name: ({"load": rng.normal(size=(9, 4, 2)), "wind": rng.normal(size=(9, 4, 1))}, rng.integers(2, size=9))
        for name in ("north", "east")
    }
    flat = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 2))
    with pytest.raises(ConfigError, match="the members have 3 columns, and the model's first layer reads 12"):
        coterie.train(flat, clients=series, algorithm="confined", out=tmp_path / "run", progress=False)


def test_an_lstm_learns_from_series_of_several_stations(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def region(rows: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        columns = {"load": rng.normal(size=(rows, 5, 2)), "wind": rng.normal(size=(rows, 5, 1))}
        return columns, columns["load"][:, -1, :1] - columns["wind"][:, -1]

    result = coterie.train(
        build("lstm", (5, 3), 1, 0),
        clients={name: region(30) for name in ("north", "east", "south")},
        test_set=region(50),
        algorithm="confined",
        rounds=15,
        settings={"training.learning_rate": 1.0, "training.evaluate_every": 1},
        out=tmp_path / "run",
        progress=False,
    )
    losses = [record.test_loss for record in result.records]
    assert losses[-1] < losses[0]  # type: ignore[operator]
    assert "squared error" in result.summary.yardstick.name


def test_another_order_of_members_is_other_data(tmp_path: Path) -> None:
    data = regions()
    common: dict[str, Any] = {"algorithm": "confined", "out": tmp_path / "run", "progress": False, "resume": True}
    coterie.train(small_model, clients=data, rounds=2, **common)
    turned = {name: (dict(reversed(columns.items())), labels) for name, (columns, labels) in data.items()}
    with pytest.raises(ConfigError, match="data"):
        coterie.train(small_model, clients=turned, rounds=3, **common)
    assert len(coterie.train(small_model, clients=data, rounds=3, **common).records) == 3


def test_columns_of_members_are_read_from_files(tmp_path: Path) -> None:
    for name, (columns, labels) in regions(20).items():
        folder = tmp_path / "data" / ("test" if name == "west" else name)
        folder.mkdir(parents=True)
        for member, array in columns.items():
            header = ",".join(f"{member}-{number}" for number in range(array.shape[1]))
            np.savetxt(folder / f"{member}.csv", array, delimiter=",", header=header, comments="")
        np.savetxt(folder / "labels.csv", labels, header="leaves", comments="", fmt="%d")
    overrides = [*SMALL, "clients.count=3", "cohort.size=3", "confined.grid.members=3", "data=column-files", "rounds=2"]
    arguments = ["--data-dir", str(tmp_path / "data"), "--out", str(tmp_path / "run"), *as_options(overrides)]
    shown = CliRunner().invoke(app, ["run", *arguments])
    assert shown.exit_code == 0, shown.output
    assert "2 rounds on column-files: 3 clients" in shown.output


def test_three_companies_learn_more_than_one(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "confined_columns.py"
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, check=True, timeout=600, cwd=tmp_path
    )
    found = re.fullmatch(r"All three companies: ([\d.]+)% .* The bank alone: ([\d.]+)%\.\n", done.stdout)
    assert found
    together, alone = map(float, found.groups())
    assert together > alone + 10


def test_example_epsilon_counts_all_blocks(tmp_path: Path) -> None:
    """Replacing an example changes m_v + 1 clipped blocks; the accountant's value is the one of that sensitivity."""
    noise = ("noise.kind=discrete-gaussian", "noise.multiplier=50.0", "noise.clip_norm=2.2361", "rounds=2")
    result = play(tmp_path / "run", *GRID, *noise, "aggregation.precision=24")
    built = build_run(result.summary.config, find_federation(result.summary.config))  # type: ignore[arg-type]
    found = built.example_epsilon(2)
    assert found is not None
    expected = sound_epsilon(built.sigma, 2, 1e-5, honest=built.noise_shares, blocks=5)
    assert expected <= found < 1.05 * expected
    without = sound_epsilon(built.sigma, 2, 1e-5, honest=built.noise_shares, blocks=1)
    assert found > 2 * without
