"""The promise of a recorded run: an audit of its folder says what the run itself says."""

import json
import re
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

pytest.importorskip("torch", reason="training needs coterie[train]")

from coterie.cli import app
from coterie.cohorts.ledger import Ledger
from coterie.errors import ConfigError
from coterie.runs.engine.promise import read_promise
from coterie.runs.engine.run import TrainingRun
from coterie.runs.settings.toml import make_config
from coterie.runs.storage.folder import Checkpoint, RunFolder

SMALL = {"model.name": "softmax-regression", "clients.count": 24, "cohort.size": 12, "rounds": 1, "training.epochs": 1}
EVERYBODY = {"availability.kind": "equal", "availability.dropout": 0.0, "faults.dropout": 0.0}
ACTIVE = {"aggregation.threat": "active-server"}
FEW = {"cohort.privacy": 4, "cohort.minimum": 6, "aggregation.collusion": 0.15}  # c = 3 of 24: T - c = 1
PLANNED = {"aggregation.collusion": 0.0, "aggregation.dropout": 0.01}
SPARSE = {"cohort.privacy": 4, "aggregation.topology": "harary", **PLANNED}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {**ACTIVE, **SPARSE, "cohort.size": 20},
            "against a malicious server, on a sparse graph, with c = 0: no T promised; on a sparse graph a server",
        ),
        (
            {**ACTIVE, **FEW},
            "on a complete graph, with c = 3: T = 4 promised for any number of rounds (T - c = 1 with c = 3 colluders)",
        ),
        (
            {"cohort.privacy": 4},
            "against an honest-but-curious server, on a complete graph, with c = 0: T = 4 promised for any number",
        ),
        ({"cohort.policy": "random"}, "with c = 0: no T promised, because no circles keep clients together"),
    ],
)
def test_an_audit_of_a_run_says_what_the_run_promises(changes: dict[str, object], words: str, tmp_path: Path) -> None:
    folder, page = tmp_path / "run", tmp_path / "page.html"
    summary = TrainingRun.begin(folder, make_config({**SMALL, **EVERYBODY, **changes})).play().summary
    promise = read_promise(folder)
    assert promise == summary.promise
    result = CliRunner().invoke(app, ["audit", str(folder), "--html", str(page)])
    assert result.exit_code == 0  # of the sums alone
    assert words in " ".join(result.stdout.split()).split("What the run promises ")[1]
    assert words in " ".join(page.read_text().split())
    found = json.loads(CliRunner().invoke(app, ["audit", str(folder), "--json"]).stdout)["promise"]
    assert words in found["words"]
    assert found["holds"] is promise.holds
    assert (found["graph"], found["colluders"]) == ("sparse" if promise.sparse else "complete", promise.colluders)
    assert found["threat"] == changes.get("aggregation.threat", "honest-but-curious")


def test_nothing_is_promised_for_sparse_graphs_of_an_earlier_version(tmp_path: Path) -> None:
    """That version did not count that a dropout excludes its circle, so its bounds do not hold."""
    folder = tmp_path / "run"
    TrainingRun.begin(folder, make_config({**SMALL, **EVERYBODY, **SPARSE, "cohort.size": 20})).play()
    assert read_promise(folder).privacy == 4
    edit(folder, 'dropout_of = "client"\n', "", checkpoint=True)
    promise = read_promise(folder)
    assert (promise.sparse, promise.unproven, promise.privacy) == (True, True, 1)
    assert "earlier version" in str(promise)
    with pytest.raises(ConfigError, match="set dropout_of to client"):
        TrainingRun.begin(tmp_path / "new", make_config({**SMALL, "aggregation.dropout_of": "session"}))


def test_an_audit_runs_nothing_that_a_folder_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    TrainingRun.begin(folder, make_config({**SMALL, **EVERYBODY, **ACTIVE, "cohort.privacy": 4})).play()
    (tmp_path / "stranger.py").write_text("raise SystemExit('imported')")
    edit(folder, 'topology = ".*"', 'topology = "stranger:Graph"', checkpoint=True)
    monkeypatch.chdir(tmp_path)
    assert read_promise(folder).cut
    assert "stranger" not in sys.modules


def edit(folder: Path, pattern: str, text: str, *, checkpoint: bool = False) -> None:
    """Change the settings in a run's folder and, if asked for, those in its checkpoint."""
    opened = RunFolder.open(folder)
    opened.config_file.write_text(re.sub(pattern, text, opened.config_file.read_text()))
    found = opened.checkpoint()
    if checkpoint and found is not None:
        settings = re.sub(pattern, text, found.progress.settings)
        opened.save(Checkpoint(msgspec.structs.replace(found.progress, settings=settings), found.state))


@pytest.mark.parametrize(
    ("pattern", "text", "said"),
    [
        ('threat = ".*"', 'threat = "active-server"', "aggregation.threat was 'honest-but-curious'"),
        ('topology = ".*"', 'topology = "complete"', "aggregation.topology was 'harary'"),
        ('topology = ".*"\n', "", "aggregation.topology was 'harary' and is 'complete'"),
        ('kind = "secure"', 'kind = "plain"', "aggregation.kind is plain there, and secure in checkpoint.safetensors"),
        ("collusion = .*", "collusion = 0.04", "aggregation.collusion was 0.0 and is 0.04"),
    ],
)
def test_edited_settings_change_no_promise(pattern: str, text: str, said: str, tmp_path: Path) -> None:
    """The checkpoint has the real settings. Only if both were edited would the change go unnoticed."""
    folder = tmp_path / "run"
    TrainingRun.begin(folder, make_config({**SMALL, **EVERYBODY, **SPARSE, "cohort.size": 20})).play()
    before = (folder / "config.toml").read_text()
    edit(folder, pattern, text)
    assert (folder / "config.toml").read_text() != before
    result = CliRunner().invoke(app, ["audit", str(folder), "--require", "4"])
    assert result.exit_code == 2
    assert said in result.stderr
    assert not result.stdout
    (folder / "config.toml").write_text(before)
    edit(folder, r"\A((?:.*\n)*?)rounds = 1\n", r"\1rounds = 2\n")  # may change when a run is resumed
    assert CliRunner().invoke(app, ["audit", str(folder), "--require", "4"]).exit_code == 0


def test_a_promise_without_a_checkpoint_is_said_to_rest_on_the_settings_alone(tmp_path: Path) -> None:
    folder, alone = tmp_path / "run", "This is by config.toml alone"
    TrainingRun.begin(folder, make_config({**SMALL, **EVERYBODY, "cohort.privacy": 4})).play()
    promised = json.loads(CliRunner().invoke(app, ["audit", str(folder), "--json"]).stdout)["promise"]
    assert alone not in promised["words"]
    (folder / "checkpoint.safetensors").unlink()
    found = json.loads(CliRunner().invoke(app, ["audit", str(folder), "--json"]).stdout)["promise"]
    assert alone in found["words"]
    assert {**found, "words": ""} == {**promised, "words": ""}


def test_a_folder_that_does_not_say_what_it_promises(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.reveal(1, ["a", "b"], promised=1)
    (tmp_path / "config.toml").write_text("rounds = 1")
    result = CliRunner().invoke(app, ["audit", str(tmp_path)])
    assert result.exit_code == 0
    assert "What the run promises not known: the folder has no roster.msgpack" in " ".join(result.stdout.split())
    (tmp_path / "roster.msgpack").write_bytes(b"garbage")
    with pytest.raises(ConfigError, match="not a roster"):
        read_promise(tmp_path)
