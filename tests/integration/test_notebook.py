"""``coterie.train`` in a notebook, and Ctrl-C: a bar, results as HTML, and a folder that is resumed to the bit."""

import builtins
import os
import signal
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs coterie[train]")

from torch import nn

import coterie
from coterie.errors import RunInterrupted
from coterie.planning.deployment import plan_deployment
from coterie.runs.engine.run import RunResult
from coterie.runs.records.record import RoundRecord
from coterie.runs.report.observers import Observer

HOSTILE = "<script>alert(1)</script><b>&amp;\x1b[31m"
ROUNDS = 4


def train(out: Path, *, observers: tuple[Observer, ...] = (), progress: bool = False, **more: Any) -> RunResult:  # noqa: ANN401
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)).astype(np.float32), rng.integers(0, 2, 60)

    def model() -> nn.Module:
        return nn.Linear(3, 2)

    given: dict[str, Any] = {"clients": 6, "cohort": 4, "rounds": ROUNDS, "settings": {"aggregation.clip": 10.0}} | more
    return coterie.train(model, (x, y), (x, y), out=out, progress=progress, observers=observers, **given)


class CtrlC(Observer):
    """Presses Ctrl-C this number of times while a round is played."""

    def __init__(self, number: int, times: int = 1) -> None:
        self._number, self._times = number, times

    def step(self, number: int, step: str, done: int, asked: int) -> None:
        if number == self._number and self._times:
            self._times -= 1
            signal.raise_signal(signal.SIGINT)


def weights(result: RunResult) -> list[bytes]:
    return [array.numpy().tobytes() for array in result.model.state_dict().values()]


def comparable(records: tuple[RoundRecord, ...]) -> list[tuple[object, ...]]:
    return [(one.round, one.outcome, one.aggregated, one.test_loss, one.accuracy) for one in records]


@pytest.mark.parametrize(("times", "played"), [(1, 2), (2, 1)])
def test_ctrl_c_says_how_to_continue_and_the_folder_continues_to_the_bit(
    times: int, played: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After one Ctrl-C, round 2 is finished first. After two, it is abandoned, and played again later."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(RunInterrupted) as caught:
        train(tmp_path / "run", observers=(CtrlC(2, times),))
    error = caught.value
    assert signal.getsignal(signal.SIGINT) is before
    assert isinstance(error, KeyboardInterrupt)
    assert not isinstance(error, Exception)
    assert (error.folder, error.played, error.planned) == (str(tmp_path / "run"), played, ROUNDS)
    assert str(error) == (
        f"interrupted after {played} of 4 rounds. To continue, call train with the same arguments, "
        f"out={str(tmp_path / 'run')!r} and resume=True; the result is the same as without the interruption"
    )
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None
    assert "Stopping after this round" in capsys.readouterr().err
    resumed, whole = train(tmp_path / "run", resume=True), train(tmp_path / "whole")
    assert weights(resumed) == weights(whole)
    assert comparable(resumed.records) == comparable(whole.records)


def test_ctrl_c_in_the_last_round_interrupts_nothing(tmp_path: Path) -> None:
    assert train(tmp_path / "run", observers=(CtrlC(ROUNDS),)).summary.finished


def test_training_in_another_thread_leaves_signals_alone(tmp_path: Path) -> None:
    results: list[RunResult] = []
    thread = threading.Thread(target=lambda: results.append(train(tmp_path / "run", rounds=1)))
    thread.start()
    thread.join()
    assert results[0].summary.finished


def test_a_script_that_is_interrupted_shows_no_frame_of_the_engine(tmp_path: Path) -> None:
    script = """
import signal
import numpy as np
from torch import nn
import coterie
from coterie.runs.report.observers import Observer

class CtrlC(Observer):
    def step(self, number, step, done, asked):
        if number == 2:
            signal.raise_signal(signal.SIGINT)

x, y = np.ones((20, 2), np.float32), np.arange(20) % 2
coterie.train(nn.Linear(2, 2), (x, y), clients=4, cohort=4, rounds=9, out="run", progress=False, observers=[CtrlC()])
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        check=False,
    )
    assert done.returncode != 0
    stopping, shown = done.stderr.splitlines()
    assert stopping.startswith("Stopping after this round")
    assert shown.startswith("coterie: interrupted after")
    assert "out='run' and resume=True" in shown


def test_the_console_says_how_a_program_continues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It must not name ``coterie resume``, which refuses the data of a program."""
    with pytest.raises(RunInterrupted):
        train(tmp_path / "run", progress=True, observers=(CtrlC(2),))
    shown = "".join(capsys.readouterr().out.split())
    assert f"coterie.train(...,out='{tmp_path}/run',resume=True)" in shown
    assert "coterieresume" not in shown
    assert "coterie.train(..., out=" in (tmp_path / "run" / "report.html").read_text()


class Display:
    """A stand-in for IPython.display, with what the cell shows."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, shown: str, *, display_id: bool) -> "Display":
        assert display_id
        self.shown.append(shown)
        return self

    def update(self, shown: str) -> None:
        self.shown.append(shown)

    @staticmethod
    def HTML(html: str) -> str:  # noqa: N802
        return html


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Display:
    """A shell of the class that notebooks have, without IPython."""
    display = Display()
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setattr(builtins, "get_ipython", lambda: shell, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return display


class Tags(HTMLParser):
    """Collects tags and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: dict[str, list[dict[str, str | None]]] = {}
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.setdefault(tag, []).append(dict(attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_notebook_shows_a_bar(notebook: Display, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path / HOSTILE.replace("/", ""), progress=True)
    first, last = Tags(notebook.shown[0]), Tags(notebook.shown[-1])
    assert [bar["value"] for bar in first.tags["progress"]] == ["0"]
    assert [(bar["value"], bar["max"]) for bar in last.tags["progress"]] == [("4", "4")]
    assert "round 4 of 4" in last.text
    assert "accuracy" in last.text
    assert "script" not in last.tags
    assert "\\x1b[31m" in last.text  # a control character in the name of the folder is escaped
    assert capsys.readouterr().out == ""


def test_a_notebook_shows_that_a_run_was_interrupted(notebook: Display, tmp_path: Path) -> None:
    with pytest.raises(RunInterrupted) as caught:
        train(tmp_path / "run", progress=True, observers=(CtrlC(2),))
    assert "Interrupted after 2 rounds." in notebook.shown[-1]
    (line,) = caught.value._render_traceback_()  # IPython shows this in place of a traceback
    assert line == f"RunInterrupted: {caught.value}"


def check_html(html: str | None) -> Tags:
    """Check that HTML is complete in itself and takes its colours from the notebook."""
    assert html is not None
    found = Tags(html)
    assert not found.tags.keys() & {"script", "link", "img", "iframe", "b", "style"}
    assert "http" not in html
    styles = " ".join(filter(None, (attributes.get("style") for tags in found.tags.values() for attributes in tags)))
    assert "background: #" not in styles
    assert "color: black" not in styles
    return found


def test_the_result_of_a_run_is_html(tmp_path: Path) -> None:
    result = train(tmp_path / HOSTILE.replace("/", ""))
    found = check_html(result._repr_html_())
    assert "svg" in found.tags
    assert f"after {ROUNDS} rounds" in found.text
    assert "Privacy" in found.text


def test_the_result_of_a_run_prints_as_its_summary(tmp_path: Path) -> None:
    """Many users print a result first."""
    result = train(tmp_path)
    lines = str(result).splitlines()
    assert f"after {ROUNDS} rounds" in lines[0]
    assert [line.partition(":")[0] for line in lines[1:]][:1] == ["Model"]
    assert lines[-1] == f"Report: {result.folder}/report.html"
    assert len(repr(result)) < 200


def test_warnings_point_to_the_call_of_train(tmp_path: Path) -> None:
    """They must not point to a line of Coterie, which the user cannot change."""
    with pytest.warns(UserWarning, match="are clipped") as caught:
        train(tmp_path, settings={"aggregation.clip": 1e-4})
    assert {warning.filename for warning in caught if "are clipped" in str(warning.message)} == {__file__}


def test_audits_and_plans_are_html() -> None:
    from coterie.cohorts.participation import Participation

    history = Participation((HOSTILE, "bob", "cid"), (1, 2), ((0, 1, 2), (1, 2)))
    found = check_html(coterie.audit(history)._repr_html_())
    assert "1 of 3 clients is exposed" in found.text
    assert "<script>alert(1)</script>" in found.text  # as text
    safe = check_html(coterie.audit([[1, 1, 0, 0], [0, 0, 1, 1]])._repr_html_())
    assert "✓ Protected" in safe.text
    session = check_html(coterie.plan(200, 0.1, collusion=0.05)._repr_html_())
    assert "A session of 200 clients against an honest-but-curious server" in session.text
    population = check_html(coterie.plan(120, 0.3, cohort=12)._repr_html_())
    assert "T = 4 is recommended" in population.text
    deployment = check_html(plan_deployment(120, 12, [0.1], rounds=10, lost=0.02)._repr_html_())
    assert "120 clients in cohorts of 12, 10 rounds: T = " in deployment.text
