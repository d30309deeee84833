"""``coterie demo`` from end to end, at a size that takes a moment."""

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from tests.support.commands import run_in
from typer.testing import CliRunner

from coterie.cli import app
from coterie.demo.fingerprint import Pixels, fingerprint, shape_of
from coterie.demo.report import StepView
from coterie.demo.session import Demo
from coterie.demo.settings import DemoSettings
from coterie.errors import ConfigError, VerificationError
from coterie.graphs import Complete, ErdosRenyi, Harary, Topology
from coterie.host import install_command
from coterie.secagg import Step

SMALL = ("--clients", "12", "--length", "400", "--dropout", "0.34")


def invoke(out: Path, *options: str, **environment: str) -> tuple[int, str, str]:
    result = CliRunner(env=environment).invoke(app, ["demo", *SMALL, "--out", str(out), *options])
    return result.exit_code, result.stdout, result.stderr


def read(out: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((out / "report.json").read_bytes())
    return report


def test_the_command_prints_a_table_and_writes_a_summary_a_picture_and_a_report(tmp_path: Path) -> None:
    code, output, _ = invoke(tmp_path / "new" / "folder")
    out = tmp_path / "new" / "folder"
    assert code == 0
    assert "exactly those of plain summation" in output
    assert "9 of 12 aggregated, 3 dropped out" in " ".join(output.split())
    for step in ("advertise", "share", "mask", "reveal", "unmask", "plain sum"):
        assert step in output
    assert imread(out / "what-the-server-saw.png").shape == (1260, 1800, 4)
    report = read(out)
    assert report["plot"] == "what-the-server-saw.png"
    assert report["exact"]
    assert 0 < report["mean_error"] <= report["mean_error_bound"]
    assert [len(step["dropped"]) for step in report["steps"]] == [1, 1, 1, 1, 0]
    assert [step["left"] for step in report["steps"]] == [11, 10, 9, 8, 9]
    assert len(report["aggregated"]) == report["view"]["masked_vectors"] == 9
    assert all(step["server_ms"] > 0 for step in report["steps"])
    cost = report["cost"]
    assert cost["plain_upload_bytes"] == 1600
    assert cost["upload_bytes"] == sum(step["upload_bytes"] for step in report["steps"])


def test_json_contains_only_the_report(tmp_path: Path) -> None:
    code, output, errors = invoke(tmp_path, "--json")
    assert (code, errors) == (0, "")
    assert json.loads(output) == read(tmp_path)


def test_in_a_terminal_the_table_is_redrawn_with_bars(tmp_path: Path) -> None:
    code, output, _ = invoke(tmp_path, FORCE_COLOR="1", COLUMNS="120")
    assert code == 0
    assert "answered" in output
    assert "━" in output
    assert "\x1b[2K" in output


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize(
    ("topology", "graph"), [("harary", Harary), ("complete", Complete), ("erdos-renyi", ErdosRenyi)]
)
def test_the_demonstration_supports_every_topology_and_threat_mode(
    topology: str, graph: type[Topology], active: bool
) -> None:
    report, _ = Demo(DemoSettings(clients=12, length=400, dropout=0.1, topology=topology, active=active)).run()
    assert isinstance(report.plan.topology, graph)
    assert report.plan.shortcoming is None
    steps = [row.step for row in report.steps]
    assert (steps == ["contribute", "reveal", "unmask"]) is (topology == "complete")
    assert ("confirm" in steps) is (active and topology != "complete")
    assert [row.dropped for row in report.steps if row.dropped] == [report.steps[0].dropped]
    assert {*report.aggregated, *report.steps[0].dropped} == {f"client-{number:02}" for number in range(1, 13)}


def test_circles_are_aggregated_whole_or_not_at_all(tmp_path: Path) -> None:
    code, output, _ = invoke(tmp_path, "--circles", "3", "--dropout", "0.17", "--seed", "1")
    assert code == 0
    assert "excluded with" in " ".join(output.split())
    report = read(tmp_path)
    names = [f"client-{number:02}" for number in range(1, 13)]
    circles = [set(names[first : first + 3]) for first in range(0, 12, 3)]
    aggregated, stranded = set(report["aggregated"]), set(report["stranded"])
    assert stranded
    assert aggregated
    for circle in circles:
        assert circle <= aggregated or not circle & aggregated
    gone = {name for step in report["steps"][:3] for name in step["dropped"]}
    assert aggregated | stranded == set(names) - gone


def test_a_sparse_graph_against_a_malicious_server_is_marked_as_weaker(tmp_path: Path) -> None:
    for options, weaker in (
        (("--active", "--topology", "harary"), True),
        (("--active", "--topology", "harary", "--circles", "2", "--dropout", "0"), True),
        (("--active",), False),
        ((), False),
    ):
        code, output, _ = invoke(tmp_path, *options)
        assert code == 0
        told = " ".join(output.split())
        assert ("A malicious server that knows a sparse graph can choose which clients drop out" in told) is weaker
        assert ("T does not hold for them" in told) is ("--circles" in options)


def test_against_a_malicious_server_the_demonstration_takes_two_trips(tmp_path: Path) -> None:
    code, output, _ = invoke(tmp_path, "--active")
    assert code == 0
    assert "Two trips: every client has left a one-time key at the server" in " ".join(output.split())
    assert [row["step"] for row in read(tmp_path)["steps"]] == ["contribute", "reveal", "unmask"]


def test_with_many_losses_the_demonstration_confirms_survivors() -> None:
    settings = DemoSettings(
        clients=20, length=400, dropout=0.3, topology="complete", active=True, circle_size=4, seed=1
    )
    report, _ = Demo(settings).run()
    assert [row.step for row in report.steps] == ["contribute", "confirm", "reveal", "unmask"]
    assert report.exact


def test_without_matplotlib_only_the_picture_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, output, errors = invoke(tmp_path)
    assert code == 0
    assert install_command("report") in errors
    assert "Picture" not in output
    assert read(tmp_path)["plot"] is None
    assert not (tmp_path / "what-the-server-saw.png").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--dropout", "1"), "refused to continue"),
        (("--dropout", "0.7", "--active", "--topology", "harary"), "clients confirmed the survivors"),
        (("--circles", "6"), "0 clients would be aggregated"),
    ],
)
def test_an_aborted_round_is_explained(tmp_path: Path, options: tuple[str, ...], reason: str) -> None:
    code, output, errors = invoke(tmp_path, *options)
    told = " ".join(errors.split())
    assert code == 1
    assert "The round was aborted" in told
    assert reason in told
    assert "Try a lower dropout" in told
    assert "Exact" not in output
    assert "advertise" in output
    assert not (tmp_path / "report.json").exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--clients", "2"), "should be from 3 to 65536, not 2"),
        (("--length", "5"), "should be from 64 to "),
        (("--dropout", "1.5"), "should be from 0 to 1, not 1.5"),
        (("--circles", "1"), "should be at least 2, not 1"),
        (("--circles", "13"), "a circle has from 2 to 12 clients"),
        (("--seed", "-1"), "Invalid value for '--seed': should be from 0 to"),
        (("--topology", "star"), "the topology is one of complete, erdos-renyi, harary, not 'star'"),
    ],
)
def test_bad_options_are_one_clear_line(tmp_path: Path, options: tuple[str, ...], complaint: str) -> None:
    ended = run_in(tmp_path, "demo", *SMALL, "--out", tmp_path, *options)
    assert ended.status != 0
    assert complaint in " ".join(ended.said.split())
    assert "Traceback" not in ended.said
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    ended = run_in(tmp_path, "demo", *SMALL, "--out", tmp_path / "taken")
    assert ended.status == 2
    assert "cannot write to" in " ".join(ended.said.split())


def test_sizes_that_are_impossible_are_refused_by_the_library_too() -> None:
    for wrong in {"clients": 2}, {"length": 5}, {"dropout": 1.5}, {"circle_size": 101}, {"seed": -1}:
        with pytest.raises(ConfigError):
            DemoSettings(**wrong)


def test_an_unknown_topology_is_refused_by_the_library_too() -> None:
    with pytest.raises(ValueError, match="one of complete, erdos-renyi, harary"):
        Demo(DemoSettings(topology="star", length=400))


def test_the_seed_repeats_inputs_and_dropouts_but_never_secrets() -> None:
    settings = DemoSettings(clients=12, length=400, dropout=0.34, seed=3)
    (first, before), (second, after) = Demo(settings).run(), Demo(settings).run()
    assert [step.dropped for step in first.steps] == [step.dropped for step in second.steps]
    assert np.array_equal(before.quantised, after.quantised)
    assert np.array_equal(before.decoded_mean, after.decoded_mean)
    assert np.count_nonzero(before.received == after.received) < 20


def test_the_server_of_the_demonstration_receives_masked_inputs() -> None:
    report, vectors = Demo(DemoSettings(clients=5, length=5000, dropout=0)).run()
    assert abs(report.view.correlation) < 6 * report.view.chance
    counts = np.bincount(vectors.received >> np.uint32(report.ring_bits - 3), minlength=8)
    assert counts.min() > 500  # 625 expected in each, give or take 25
    assert np.abs(vectors.quantised).max() < 1 << (report.precision_bits - 1)


class Tampered(dict[str, Pixels]):
    """Inputs that change their sign from this reading on."""

    def __init__(self, pixels: dict[str, Pixels], reading: int) -> None:
        super().__init__(pixels)
        self._reading = reading
        self._readings: Counter[str] = Counter()

    def __getitem__(self, name: str) -> Pixels:
        self._readings[name] += 1
        return -super().__getitem__(name) if self._readings[name] >= self._reading else super().__getitem__(name)


@pytest.mark.parametrize(
    ("reading", "complaint"),
    [(2, "the sum is wrong in"), (4, "the mean is off by")],  # 1: sent, 2: sum checked, 3: timed, 4: mean checked
)
def test_a_wrong_result_is_an_error(reading: int, complaint: str) -> None:
    demo = Demo(DemoSettings(clients=5, length=100, dropout=0))
    demo.pixels = Tampered(demo.pixels, reading)
    with pytest.raises(VerificationError, match=complaint):
        demo.run()


class Watched(dict[str, Pixels]):
    """Inputs that call a function when they are read."""

    def __init__(self, pixels: dict[str, Pixels], on_read: Callable[[], None]) -> None:
        super().__init__(pixels)
        self._on_read = on_read

    def __getitem__(self, name: str) -> Pixels:
        self._on_read()
        return super().__getitem__(name)


def test_rows_show_the_progress() -> None:
    demo = Demo(DemoSettings(clients=12, length=100, dropout=0.34))
    assert not any(row.done or row.asked for row in demo.rows())
    seen: list[tuple[StepView, ...]] = []
    demo.pixels = Watched(demo.pixels, lambda: seen.append(demo.rows()))
    demo.run()
    advertise, share, mask, reveal, unmask = seen[0]  # when the first input is read, before masking
    assert advertise.done
    assert (advertise.asked, advertise.left, len(advertise.dropped)) == (12, 11, 1)
    assert share.done
    assert not mask.done
    assert mask.dropped == ()
    assert reveal == StepView(Step.REVEAL)
    assert unmask == StepView("unmask")
    assert all(row.done for row in demo.rows())


@pytest.mark.parametrize("length", [1, 2, 64, 1000])
def test_fingerprints_fill_a_picture(length: int) -> None:
    rows, columns = shape_of(length)
    assert (rows - 1) * columns < length <= rows * columns
    first, second = (fingerprint(length, np.random.default_rng(seed)) for seed in (1, 2))
    assert first.shape == (length,)
    assert np.abs(first).max() <= 1
    assert not np.array_equal(first, second)
