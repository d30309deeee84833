"""The Flower app of the examples, plain, private and confined: they differ by a few lines, and all run."""

import difflib
import re
import shutil
from pathlib import Path

import pytest
from tests.support.loopback import ROOT, HookedFederation, hooked_app

from coterie.deployment.confined import own_model, own_state

EXAMPLES = ROOT / "examples" / "flower"
MOST_CHANGED_LINES = 15


def files(folder: Path) -> dict[str, list[str]]:
    return {
        str(path.relative_to(folder)): path.read_text().splitlines()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def changed_lines(one: str, other: str, *without: str) -> list[str]:
    plain, private = files(EXAMPLES / one), files(EXAMPLES / other)
    assert plain.keys() == private.keys()
    return [
        line
        for name, lines in plain.items()
        if name not in without
        for line in difflib.unified_diff(lines, private[name], n=0, lineterm="")
        if re.match(r"[+-](?![+-]{2} )", line)
    ]


def test_few_changed_lines_make_an_app_private() -> None:
    assert 0 < len(changed_lines("plain", "private")) <= MOST_CHANGED_LINES


def test_few_changed_lines_make_an_app_confined() -> None:
    """The task, which takes one step on all examples, and the numbers of the configuration are not counted."""
    apart = ("digits/task.py", "pyproject.toml")
    assert 0 < len(changed_lines("plain", "confined", *apart)) <= MOST_CHANGED_LINES


def accuracies(log: str) -> list[float]:
    """Return the accuracies of all rounds, which Flower's strategies log at the end."""
    return [float(value) for value in re.findall(r"\d+: \{'accuracy': '([^']+)'\}", log)]


@pytest.mark.slow
def test_both_apps_run_in_simulation(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs coterie[simulation]")
    with HookedFederation(tmp_path / "federation", simulation=True) as federation:
        reached = {}
        for kind in ("plain", "private"):
            app = shutil.copytree(EXAMPLES / kind, tmp_path / kind)
            run = federation.run(app, "--federation-config", "num-supernodes=6")
            federation.finish(run, 300)
            reached[kind] = accuracies(run.log)
        assert [len(values) for values in reached.values()] == [4, 4]
        assert reached["private"][-1] > reached["private"][0] + 0.3
        assert reached["private"][-1] == pytest.approx(reached["plain"][-1], abs=0.1)
        assert len(federation.check_history()) == 3


@pytest.mark.slow
def test_the_confined_app_runs_in_simulation(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs coterie[simulation]")
    with HookedFederation(tmp_path / "federation", simulation=True) as federation:
        app = shutil.copytree(EXAMPLES / "confined", tmp_path / "confined")
        run = federation.run(app, "--federation-config", "num-supernodes=6", **{"num-server-rounds": 10})
        federation.finish(run, 550)
        reached = accuracies(run.log)
        assert reached[-1] > reached[0] + 0.3
        assert len(federation.check_history()) == 10
        folders = sorted((federation.folder / "coterie" / "nodes").iterdir())
        models = [own_model(folder) for folder in folders]
        assert len({model["0.weight"].tobytes() for model in models}) == 6, "nodes have the same model"
        assert {own_state(folder).judged for folder in folders} == {11}


@pytest.mark.slow
def test_fifty_nodes_are_summed_in_simulation(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs coterie[simulation]")
    with HookedFederation(tmp_path / "federation", simulation=True) as federation:
        run = federation.run(
            hooked_app(tmp_path), "--federation-config", "num-supernodes=50", nodes=50, deadline=240.0, rounds=2
        )
        federation.finish(run, 550)
        rows = federation.check_history()
        assert [len(row) for row in rows.values()] == [50, 50]
