"""Wrong input of any kind: one plain line and the matching exit status, never a traceback."""

import math
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import typer.main
from tests.support.commands import refusal_of
from typer.testing import CliRunner

import coterie
from coterie.cli import app
from coterie.errors import CoterieError, InputError

GROUP: Any = typer.main.get_command(app)
COMMAND_NAMES = [
    f"{name} {inner}".strip()
    for name, command in GROUP.commands.items()
    for inner in getattr(command, "commands", {"": None})
]
HUGE = 10**30
LONG = "x" * 5000
DEPLOYMENT = ["plan", "--population", "60", "--cohort", "12", "--absent", "0.1", "--rounds", "5", "--no-calibrate"]
COMMANDS: dict[str, tuple[list[str], str]] = {
    # what is wrong: the command, and what it says
    "log: missing": (["audit", "missing.csv"], "cannot read the log missing.csv: there is no such file"),
    "log: folder": (["audit", "folder"], "folder is a folder without a config.toml of a run"),
    "log: empty": (["audit", "empty.csv"], "nothing in the log is readable: it is empty"),
    "log: binary": (["audit", "binary"], "this is not text"),
    "log: loop of links": (["audit", "loop"], "cannot read the log loop: its links lead back to each other"),
    "log: endless name": (["audit", LONG], "file name too long"),
    "log: web page": (["audit", "https://example.org/log.csv"], "https:// is not the URL of a database"),
    "log: no such database": (["audit", "mongodb://host/name"], "mongodb:// is not the URL of a database"),
    "log: ledger that is not there": (["audit", "sqlite:///nowhere/ledger.db"], "there is no ledger at"),
    "log: output is a folder": (["audit", "ok.csv", "--html", "folder"], "is a directory"),
    "log: output in no folder": (["audit", "ok.csv", "--html", "nowhere/page.html"], "there is no folder"),
    "log: full disk": (["audit", "ok.csv", "--exposed", "/dev/full"], "cannot write /dev/full: No space left"),
    "log: number": (["audit", "ok.csv", "--require", "nan"], "should be a whole number, not 'nan'"),
    "log: NaN": (["audit", "ok.csv", "--weak-seconds", "nan"], "weak_seconds must be a number of at least 0, not nan"),
    "log: huge": (["audit", "ok.csv", "--witnesses", str(HUGE)], "witnesses must be a whole number from 0 to 9,223"),
    "log: empty path": (["audit", ""], "an argument is empty: give a value, or leave it out"),
    "log: output is empty": (["audit", "ok.csv", "--exposed", ""], "--exposed is empty: give a value"),
    "log: what-if": (["audit", "ok.csv", "--what-if", "4"], "--what-if is written as circles=4, not 4"),
    "log: circles of 0": (["audit", "ok.csv", "--what-if", "circles=0"], "--what-if is written as circles=4"),
    "log: any 0": (["audit", "ok.csv", "--colluders", "any 0"], "for any clients, give a number from 1 on, as in"),
    "log: who": (["audit", "ok.csv", "--colluders", "zed"], "the log has no client zed; its "),
    "log: window": (["audit", "ok.csv", "--window", "month"], "there is no window month; there are minute, hour"),
    "log: unicode": (["audit", "ok.csv", "--colluders", "zoë\u202e"], "the log has no client zoë"),
    "settings: missing": (
        ["run", "missing.toml"],
        "cannot read missing.toml: there is no such file; coterie init writes",
    ),
    "settings: folder": (["run", "folder"], "cannot read folder: it is a folder"),
    "settings: binary": (["run", "binary"], "binary is not TOML: it is not a text file in UTF-8"),
    "settings: not TOML": (["run", "ok.csv"], "ok.csv is not TOML"),
    "settings: section": (["run", "--set", "data=3"], "data: is a section and has keys of its own, such as data.name"),
    "settings: value": (["run", "--set", "data.folder.x=1"], 'data.folder: should be a text, not {"x" = 1}'),
    "settings: list": (["run", "--set", "training.metrics=x"], 'should be a list, such as ["a", "b"], not "x"'),
    "settings: negative": (["run", "--set", "rounds=-1"], "rounds: should be at least 1, not -1"),
    "settings: NaN": (["run", "--set", "training.learning_rate=nan"], "should be a finite number, not nan"),
    "settings: text": (["run", "--set", "rounds=many"], 'rounds: should be a whole number, not "many"'),
    "run: out is a file": (["run", "--out", "ok.csv"], "cannot write to ok.csv: it is a file, not a folder"),
    "run: out below a device": (
        ["run", "--out", "/dev/null/run"],
        "cannot write to /dev/null/run: a part of the path is a file",
    ),
    "run: data in a file": (
        ["run", "--data-dir", "ok.csv", "--set", "data.name=mnist"],
        "a part of the path is a file",
    ),
    "run: out is empty": (["run", "--out", ""], "--out is empty: give a value, or leave it out"),
    "run: algorithm is empty": (["run", "--algorithm", ""], "--algorithm is empty: give a value"),
    "train": (["train"], "No such command 'train'. On the command line it is 'run'."),
    "explore: empty": (["explore", "--export", ""], "--export is empty: give a value, or leave it out"),
    "plan: two files": ([*DEPLOYMENT, "--config", "a", "--threat-model", "./a"], "a is also the file of --config"),
    "plan: percent": (["plan", "--clients", "9", "--lost", "10%"], "should be a number, not '10%'; write 0.1."),
    "reproduce: nearly": (["reproduce", "ccesa-cost"], "there is no experiment 'ccesa-cost'; did you mean ccesa-costs"),
    "reproduce: workers": (["reproduce", "ccesa-costs", "--workers", "-1"], "there cannot be -1 workers"),
    "reproduce: unlike": (["reproduce", "qqq"], "there is no experiment 'qqq'; coterie reproduce --list shows all"),
    "resume: missing": (["resume", "missing"], "missing is not the folder of a run"),
    "resume: file": (["resume", "ok.csv"], "ok.csv is not the folder of a run"),
    "resume: endless name": (["resume", LONG], "file name too long"),
    "init: folder": (["init", "folder", "--force"], "cannot write folder: Is a directory"),
    "init: full disk": (["init", "/dev/full", "--force"], "cannot write /dev/full: No space left"),
    "compare: missing": (["compare", "missing"], "there is no file or folder missing"),
    "compare: folder": (["compare", "folder"], "folder is not the folder of a run, and has none in it"),
    "compare: empty": (["compare", "empty.csv"], "empty.csv is empty: expected two columns"),
    "compare: binary": (["compare", "binary"], "binary is not a text file: expected two columns"),
    "compare: loop": (["compare", "loop"], "there is no file or folder loop"),
    "compare: endless name": (["compare", LONG], "file name too long"),
    "compare: NaN": (["compare", "ok.csv", "--target", "nan"], "target is a score such as 0.9, not nan"),
    "compare: output": (["compare", "ok.csv", "--out", "nowhere/page.html"], "cannot write nowhere/page.html"),
    "plan: NaN": (["plan", "--clients", "50", "--lost", "nan"], "lost"),
    "plan: negative": (["plan", "--clients", "-5", "--lost", "0.1"], "should be at least 3, not -5"),
    "plan: absent": (["plan", "--population", "9", "--cohort", "3", "--absent", "2"], "--absent is a probability from"),
    "plan: huge": (["plan", "--clients", str(HUGE), "--lost", "0.1"], "clients must be a whole number"),
    "plan: delta": ([*DEPLOYMENT, "--epsilon", "8", "--delta", "nan"], "delta must be a number from 0 to 1, not nan"),
    "plan: full disk": ([*DEPLOYMENT, "--config", "/dev/full"], "cannot write /dev/full: No space left"),
    "plan: no folder": ([*DEPLOYMENT, "--threat-model", "nowhere/x.html"], "cannot write nowhere/x.html"),
    "demo: topology": (["demo", "--topology", "star"], "star"),
    "demo: NaN": (["demo", "--dropout", "nan"], "dropout must be a number from 0 to 1, not nan"),
    "demo: out is a file": (["demo", "--clients", "5", "--length", "64", "--out", "ok.csv"], "ok.csv"),
    "explore: port": (["explore", "--port", "70000"], "should be from 0 to 65535, not 70000"),
    "explore: export": (["explore", "--export", "ok.csv"], "ok.csv"),
    "reproduce: name": (["reproduce", "everything"], "everything"),
    "reproduce: nothing to rewrite": (
        ["reproduce", "multi-round-metrics", "--rewrite", "--out", "folder"],
        "cannot read folder/results.json: there is no such file",
    ),
    "attack: rounds": (
        ["attack", "active-membership", "--rounds", str(HUGE)],
        "rounds must be a whole number from 1 to",
    ),
    "attack: no run": (["attack", "differencing", "--run", "missing"], "missing"),
    "bench: seed": (["bench", "audit", "--quick", "--seed", "-1"], "should be "),
    "roster: missing": (["roster", "show", "--home", "missing"], "missing"),
    "command": (["tran"], "No such command 'tran'"),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files of many kinds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "ok.csv").write_text("round,client\n1,a\n1,b\n")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


def words(text: str) -> str:
    """Return a text without the frames of the help and without line ends."""
    return " ".join(text.replace("│", " ").replace("╭", " ").replace("╰", " ").replace("─", "").split())


@pytest.mark.parametrize("wrong", COMMANDS)
@pytest.mark.usefixtures("place")
def test_wrong_input_is_reported_in_one_line(wrong: str) -> None:
    arguments, said = COMMANDS[wrong]
    if "/dev/full" in arguments and not Path("/dev/full").is_char_device():
        pytest.skip("no device that is always full")
    complaint = refusal_of(*arguments)
    assert words(said) in words(complaint)
    assert "Errno" not in complaint
    assert complaint.startswith("Usage:") or complaint.count("\n") == 1
    assert not Path("/dev/full").is_file()  # a device is written to, not replaced by a file


def number_options() -> list[tuple[str, str]]:
    """Return every option that takes one number, after the name of its command."""

    def found(command: click.Command, name: str) -> list[tuple[str, str]]:
        if isinstance(command, click.Group):
            return [one for called, inner in command.commands.items() for one in found(inner, f"{name} {called}")]
        return [
            (name.strip(), option.opts[0])
            for option in command.params
            if isinstance(option, click.Option) and option.type.name.partition(" ")[0] in ("integer", "float")
        ]

    return found(typer.main.get_command(app), "")


@pytest.mark.parametrize(("command", "option"), number_options())
@pytest.mark.usefixtures("place")
def test_every_option_for_a_number_refuses_nan(command: str, option: str) -> None:
    """NaN passes the bounds that a float has, since it is neither below nor above any of them."""
    required = {"audit": ["ok.csv"], "compare": ["ok.csv"], "plan": ["--clients", "50", "--lost", "0.1"]}
    if command == "plan" and option in ("--population", "--cohort", "--absent", "--epsilon", "--delta", "--rounds"):
        required["plan"] = DEPLOYMENT[1:]
    if command == "plan" and option == "--survival":
        required["plan"] = ["--population", "60", "--cohort", "12", "--absent", "0.1"]
    assert refusal_of(*command.split(), *required.get(command, []), option, "nan")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ([[1, 0], [1]], "Here the rows differ in length"),
        ([[2]], "entries 0 and 1. Here an entry is 2"),
        ([[math.nan]], "Here an entry is nan"),
        ([1, 0], "the number of dimensions is 1, and not 2"),
        (["ab"], "the number of dimensions is 1, and not 2"),
        (None, "not NoneType"),
        (np.zeros((2, 2, 2)), "the number of dimensions is 3"),
        ("http://example.org/log.csv", "download a log first, and give the path of the file"),
        ("missing.csv", "cannot read the log missing.csv: there is no such file"),
        ("folder", "is a folder without a config.toml"),
        ("empty.csv", "it is empty"),
        ("a\0b", "embedded null byte"),
        (LONG, "file name too long"),
        (Path("loop"), "its links lead back to each other"),
    ],
)
@pytest.mark.usefixtures("place")
def test_an_audit_refuses_in_words(source: Any, said: str) -> None:  # noqa: ANN401
    with pytest.raises(CoterieError) as refused:
        coterie.audit(source)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def aggregate(**more: Any) -> object:  # noqa: ANN401
    """Aggregate three clients, with some arguments."""
    return coterie.aggregate(**{"inputs": {name: np.ones(2) for name in "abc"}, "clip": 1.0, **more})


AGGREGATES: dict[str, tuple[dict[str, Any], str]] = {
    "names": ({"inputs": {1: np.ones(2), 2: np.ones(2)}}, "the name of a client is a text"),
    "no name": ({"inputs": {"": np.ones(2), "a": np.ones(2)}}, "the name of a client is a text"),
    "text": (
        {"inputs": {"a": np.ones(2), "b": "x"}},
        "the input of 'b': arrays[0] is a str, not a numpy array",
    ),
    "NaN": ({"inputs": {"a": np.ones(2), "b": np.full(2, np.nan)}}, "the input of 'b': arrays[0] is NaN"),
    "weights in a list": ({"weights": [1, 1, 1]}, "weights is a dictionary with a value for each client, not"),
    "weight": ({"weights": {"a": 1, "b": -1, "c": 1}}, "weights['b'] must be a whole number of at least 1"),
    "half": ({"weights": {"a": 1, "b": 0.5, "c": 1}}, "weights['b'] must be a whole number of at least 1"),
    "circles": ({"circles": {"a": "x", "b": "x", "c": "x"}}, "circles['a'] must be a whole number, not 'x'"),
    "minimum": ({"minimum": "x"}, "minimum must be a whole number from 2 to 3, not 'x'"),
    "threshold": ({"threshold": 99}, "threshold must be a whole number from 1 to 3, not 99"),
    "dropout": ({"dropout": math.nan}, "dropout must be a number from 0 to 1, not nan"),
    "faults": ({"faults": 0.5}, "faults is coterie.transports.faults.Faults(...) or None, not 0.5"),
    "workers": ({"workers": -1}, "workers must be a whole number of at least 1, not -1"),
    "seed": ({"seed": "x"}, "seed must be a whole number of at least 0, not 'x'"),
    "identities": ({"identities": dict.fromkeys("abc", 1)}, "identities['a'] must be of type Identity, not 1"),
}
MATRIX = [[1, 1, 0], [1, 0, 1]]
CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "collusion": (
        lambda: coterie.audit(MATRIX, collusion=-1),
        "collusion must be a whole number of at least 0, not -1",
    ),
    "collusion NaN": (lambda: coterie.audit(MATRIX, collusion=math.nan), "must be a whole number"),  # type: ignore[arg-type]
    "time": (lambda: coterie.audit(MATRIX, weak_seconds=math.nan), "weak_seconds must be a number of at least 0"),
    "clients": (lambda: coterie.plan(HUGE, 0.1), "clients must be a whole number from 1 to"),
    "clients NaN": (lambda: coterie.plan(math.nan, 0.1), "clients must be a whole number"),  # type: ignore[call-overload]
    "clients text": (lambda: coterie.plan("many", 0.1), "clients must be a whole number"),  # type: ignore[call-overload]
    "missing": (lambda: coterie.plan(50, "some"), "missing must be a number, not 'some'"),  # type: ignore[call-overload]
    "missing NaN": (lambda: coterie.plan(50, math.nan), "missing must be a number, not nan"),
    "cohort": (lambda: coterie.plan(50, 0.1, cohort=math.nan), "cohort must be a whole"),  # type: ignore[call-overload]
    "length": (lambda: coterie.plan(50, 0.1, length=-1), "length must be a whole number of at least 1, not -1"),
    "seed": (lambda: coterie.plan(50, 0.1, cohort=10, seed=-1), "seed must be a whole number from 0 to"),
    "T": (lambda: coterie.plan(50, 0.1, privacy=math.nan), "privacy must be a whole number"),  # type: ignore[call-overload]
    "digits": (lambda: coterie.plan(10**3000, 0.1), "..."),
    "inputs": (lambda: coterie.aggregate([1, 2], clip=1.0), "inputs is a dictionary"),  # type: ignore[arg-type]
    "absent in a session": (lambda: coterie.plan(50, 0.1, absent=0.1), "a plan of a session has no option absent"),  # type: ignore[call-overload]
    "rounds": (
        lambda: coterie.plan(50, 0.1, cohort=10, rounds=5),  # type: ignore[call-overload]
        "no option rounds; it has privacy, lost, ",
    ),
    "no clients": (lambda: coterie.plan(population=50, rounds=5), "plan needs the number of clients: plan(1000, 0.1)"),  # type: ignore[call-overload]
    "no missing": (lambda: coterie.plan(50), "a plan needs missing, the second argument"),  # type: ignore[call-overload]
    "missing is empty": (lambda: coterie.plan(50, [], cohort=10), "missing is empty: give a probability"),
    "precision": (lambda: coterie.plan(50, 0.1, precision=99), "a whole number from 2 to 53, not 99"),
    "lost": (
        lambda: coterie.plan(50, -0.1),
        "the probability that a client is lost in a round, from 0 to below 1, not",
    ),
    "runs": (lambda: coterie.compare(5), "compare takes folders of runs, results of train and CSV files, not int"),  # type: ignore[arg-type]
    "no runs": (lambda: coterie.compare(""), "the path of a source is empty"),
    "target": (lambda: coterie.compare("x", target="y"), "target is a score such as 0.9, not 'y'"),  # type: ignore[arg-type]
    **{f"aggregate: {name}": (partial(aggregate, **more), said) for name, (more, said) in AGGREGATES.items()},
}


@pytest.mark.parametrize("wrong", CALLS)
def test_calls_are_refused_in_words(wrong: str) -> None:
    call, said = CALLS[wrong]
    with pytest.raises(CoterieError) as refused:
        call()
    assert said in str(refused.value)
    assert len(str(refused.value)) < 400


TRAININGS: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"model": "mlp"}, "a function without arguments that makes one, not the text 'mlp'"),
    "nothing": ({"model": None}, "not NoneType"),
    "class": ({"model": dict}, "must be a torch module"),
    "arguments": ({"model": lambda size: size}, "needs arguments"),
    "epsilon": ({"epsilon": "8"}, "epsilon is a number above 0, or None for no noise, not '8'"),
    "epsilon NaN": ({"epsilon": math.nan}, "epsilon is a number above 0"),
    "settings": ({"settings": [1]}, "settings are keys with values"),
    "keys": ({"settings": {3: 1}}, "settings are keys with values"),
    "out": ({"out": 3}, "out is the path of a folder, not 3"),
    "out NUL": ({"out": "a\0b"}, "cannot be the folder of a run: embedded null byte"),
    "out long": ({"out": LONG}, "cannot be the folder of a run: file name too long"),
    "observer": ({"observers": [3]}, "int is no observer: derive it from coterie.runs.report.observers.Observer"),
    "observers": ({"observers": 3}, "observers is a list, not int"),
    "rounds": ({"rounds": math.nan}, "rounds: should be a whole number"),
    "rounds huge": ({"rounds": HUGE}, "rounds: should be"),
    "cohort": ({"cohort": -1}, "cohort.size: should be at least 1, not -1"),
}


@pytest.mark.parametrize("wrong", TRAININGS)
@pytest.mark.usefixtures("place")
def test_training_is_refused_in_words(wrong: str) -> None:
    pytest.importorskip("torch", reason="training needs coterie[train]")
    from torch import nn

    changes, said = TRAININGS[wrong]
    x, y = np.zeros((8, 2), np.float32), np.arange(8) % 2
    given: dict[str, Any] = {"model": nn.Linear(2, 2), "clients": 4, "cohort": 4, "rounds": 1, "out": "run"} | changes
    with pytest.raises(CoterieError) as refused:
        coterie.train(given.pop("model"), (x, y), progress=False, **given)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 400
    assert not Path("run").exists()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_log_that_may_not_be_read(place: Path) -> None:
    (place / "ok.csv").chmod(0)
    with pytest.raises(InputError, match="permission denied"):
        coterie.audit(place / "ok.csv")


@pytest.mark.parametrize("columns", ["20", "40"])
@pytest.mark.parametrize("arguments", [["audit", "ok.csv"], ["plan", "--clients", "50", "--lost", "0.1"], ["--help"]])
def test_narrow_terminals_and_no_colour(arguments: list[str], columns: str, place: Path) -> None:
    """NO_COLOR leaves no escape sequence, and nothing fails if little fits."""
    done = subprocess.run(
        [sys.executable, "-m", "coterie", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": columns, "NO_COLOR": "1", "FORCE_COLOR": ""},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "\x1b[3" not in done.stdout
    assert done.stdout.strip()


def test_an_unexpected_system_error_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError(28, "No space left on device", "/data/run/metrics.jsonl")

    monkeypatch.setattr("coterie.cli.app", fail)
    assert refusal_of() == "coterie: /data/run/metrics.jsonl: no space left on device\n"


def test_ctrl_c_while_the_program_is_loaded_is_one_line(tmp_path: Path) -> None:
    """A package that the command line imports first stands for a slow disk."""
    (tmp_path / "typer.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(30)\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    program = "from coterie.__main__ import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "coterie: interrupted\n")


@pytest.mark.parametrize("command", sorted(COMMAND_NAMES))
def test_every_help_has_an_example(command: str) -> None:
    found = CliRunner().invoke(app, [*command.split(), "--help"], terminal_width=200)
    assert found.exit_code == 0
    assert f"coterie {command}" in found.stdout.split("Usage:")[1].split("\n", 1)[1]
