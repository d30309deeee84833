"""A run that was killed at any moment resumes and ends with the same result."""

import json
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch", reason="training needs coterie[train]")
from tests.support.interruptions import Interrupt, crash_before_checkpoint, stored_model
from tests.support.programs import Program, started

from coterie.cohorts.ledger import Entry, Ledger
from coterie.cohorts.memory import MemoryFile
from coterie.cohorts.roster import Client
from coterie.errors import ConfigError, InputError, LedgerTampered, TrainingError
from coterie.locks import locked
from coterie.runs.engine.build import build_run
from coterie.runs.engine.federation import find_federation
from coterie.runs.engine.promise import read_promise
from coterie.runs.engine.run import TrainingRun
from coterie.runs.records.record import CLOCKS
from coterie.runs.sections.collusion import session_colluders
from coterie.runs.settings.toml import load_config
from coterie.runs.storage.folder import SECRET_BYTES, Checkpoint, RunFolder

RESUME = "import typer; from coterie.cli.run import resume; typer.run(resume)"
PROGRAM = Path(__file__).with_name("run_crashes.py")
SMALL = (
    "rounds=3",
    "clients.count=12",
    "cohort.size=6",
    "model.name=softmax-regression",
    "training.epochs=1",
    "training.server_momentum=0.5",
    "training.executor=processes",
    "training.workers=0",
    "faults.dropout=0.2",
    "aggregation.threads=1",
)
EVERYBODY = ("availability.kind=equal", "availability.dropout=0.0", "faults.dropout=0.0")
VARIANTS = {
    "vectorised": ("training.executor=vectorised",),
    "active server": ("aggregation.threat=active-server", "clients.weighting=samples"),
    "noise": ("noise.kind=skellam",),
    "plain": ("aggregation.kind=plain",),
    "failing rounds": ("faults.dropout=0.6", 'faults.steps=["mask", "reveal"]', "rounds=6"),
    "baseline": ("training.algorithm=local-only",),
    "personal": ("training.algorithm=ditto", "faults.dropout=0.6", 'faults.steps=["mask", "reveal"]', "rounds=6"),
    "proximal": ("training.algorithm=fedprox", "fedprox.mu=0.5"),
    "controlled": ("training.algorithm=scaffold", "faults.dropout=0.6", 'faults.steps=["mask", "reveal"]', "rounds=6"),
    "private": ("training.algorithm=sdp",),
    "confined": ("training.algorithm=confined", "partition.kind=label-shards", "confined.tau=1", "rounds=5"),
    "confined, grid": ("training.algorithm=confined", "confined.grid.members=3", "confined.clip=0.1"),
    "confined, additive": ("training.algorithm=confined", "confined.addition=additive", "confined.check.kind=history"),
    "confined, noisy": ("training.algorithm=confined", "noise.kind=skellam", "confined.addition=additive"),
}


def content(folder: Path) -> dict[str, Any]:
    """Return all that a run stores, without times."""
    records = [{**msgspec.to_builtins(record), **dict.fromkeys(CLOCKS)} for record in RunFolder.open(folder).records()]
    ledger: list[Entry] = []
    if (folder / "ledger.sqlite").exists():
        with Ledger.open(folder / "ledger.sqlite") as opened:
            opened.verify()
            ledger = list(opened.entries())
    return {
        "records": records,
        "ledger": ledger,
        "model": stored_model(folder),
        "checkpoint": (folder / "checkpoint.safetensors").read_bytes(),
        "table": len((folder / "metrics.csv").read_text().splitlines()),
        "drafts": [path.name for path in folder.iterdir() if path.suffix == ".draft"],
    }


def play_on(program: Program, folder: Path, position: int = -1) -> list[str]:
    """Continue a run until it is killed at this position or ends; return all its moments if it ended."""
    program.tell(f"{folder} {position}")
    said = program.hear()
    return [] if said == "killed" else list(json.loads(said))


def begun(folder: Path, *overrides: str) -> Path:
    RunFolder.create(folder, load_config(None, [*SMALL, *overrides]))
    return folder


def kill_and_compare(tmp_path: Path, overrides: tuple[str, ...], labels: tuple[str, ...], *, every: bool) -> None:
    """Kill a run at moments of these kinds, each time in a new copy of it, and let it continue to its end.

    With ``every``, all moments of each kind are tried, otherwise the one in the middle of the run.
    """
    original, expected = begun(tmp_path / "original", *overrides), tmp_path / "expected"
    with started(PROGRAM, original) as program:
        shutil.copytree(original, expected)
        moments = play_on(program, expected)
        wanted = content(expected)
        kinds = [[at for at, other in enumerate(moments) if other == label] for label in labels or sorted({*moments})]
        chosen = [at for kind in kinds for at in (kind if every else [kind[len(kind) // 2]])]
        for number, position in enumerate(chosen):
            folder = tmp_path / f"killed-{position}"
            shutil.copytree(original, folder)
            assert play_on(program, folder, position) == []
            if number % 3 == 0:
                play_on(program, folder, 7)  # and again, while it is being resumed
            play_on(program, folder)
            assert content(folder) == wanted, f"killed at {moments[position]}, number {position}"
            shutil.rmtree(folder)


def test_a_run_killed_at_any_kind_of_moment_ends_with_the_same_result(tmp_path: Path) -> None:
    labels = (
        "after LocalUpdates.contribution",
        "before Ledger.reveal",
        "after Ledger.reveal",
        "after Ledger.complete",
        "after Journal.add",
        "before PosixPath.replace checkpoint.safetensors",
        "after PosixPath.replace checkpoint.safetensors",
        "before PosixPath.replace model.safetensors",
    )
    kill_and_compare(tmp_path, (), labels, every=False)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_runs_of_all_kinds_killed_at_all_kinds_of_moments_end_with_the_same_result(
    tmp_path: Path, variant: str
) -> None:
    kill_and_compare(tmp_path, VARIANTS[variant], (), every=variant == "failing rounds")


def test_a_run_stopped_in_an_orderly_way_can_be_continued_to_the_same_end(tmp_path: Path) -> None:
    original = begun(tmp_path / "original")
    folder = tmp_path / "stopped"
    shutil.copytree(original, folder)
    TrainingRun.open(RunFolder.open(original)).play()
    interrupt = Interrupt(after=2)
    interrupt.run = TrainingRun.open(RunFolder.open(folder), observers=[interrupt])
    stopped = interrupt.run.play()
    assert not stopped.summary.finished
    assert len(stopped.records) == 2
    assert "This run was interrupted" in (folder / "report.html").read_text()
    result = TrainingRun.open(RunFolder.open(folder)).play()
    assert result.summary.finished
    assert content(folder) == content(original)
    assert TrainingRun.open(RunFolder.open(folder)).play().records == result.records  # there is nothing left to do


@pytest.fixture
def stopped(tmp_path: Path) -> RunFolder:
    """A run after two of its rounds."""
    folder = RunFolder.open(begun(tmp_path / "run"))
    interrupt = Interrupt(after=2)
    interrupt.run = TrainingRun.open(folder, observers=[interrupt])
    interrupt.run.play()
    return folder


def test_a_ledger_without_its_last_entry_is_detected(stopped: RunFolder) -> None:
    with sqlite3.connect(stopped.ledger_file) as database:
        database.execute("DELETE FROM coterie_ledger WHERE sequence = (SELECT max(sequence) FROM coterie_ledger)")
    with pytest.raises(LedgerTampered, match="missing"):
        TrainingRun.open(stopped).play()


def test_a_folder_that_lost_something_is_refused(stopped: RunFolder) -> None:
    lines = stopped.metrics_file.read_bytes().splitlines(keepends=True)
    stopped.metrics_file.write_bytes(lines[0])
    with pytest.raises(InputError, match="does not have the 2 rounds"):
        TrainingRun.open(stopped).play()
    stopped.metrics_file.write_bytes(b"{}\n" + lines[1])
    with pytest.raises(InputError, match="line 1"):
        TrainingRun.open(stopped).play()
    stopped.metrics_file.write_bytes(b"".join(lines))
    roster = stopped.roster_file.read_bytes()
    stopped.roster_file.write_bytes(roster[:-1])
    with pytest.raises(InputError, match="not the roster of this run"):
        TrainingRun.open(stopped).play()
    stopped.roster_file.write_bytes(roster)
    stopped.checkpoint_file.write_bytes(b"nothing")
    with pytest.raises(InputError, match="cannot be read"):
        TrainingRun.open(stopped).play()
    stopped.secret_file.write_bytes(b"short")
    stopped.checkpoint_file.unlink()
    with pytest.raises(InputError, match=r"checkpoint\.safetensors is missing"):
        TrainingRun.open(stopped).play()
    stopped.ledger_file.unlink()
    with pytest.raises(InputError, match="missing or incomplete"):
        TrainingRun.open(stopped).play()


def test_a_run_does_not_continue_under_an_edited_configuration(stopped: RunFolder) -> None:
    """A round interrupted after its sum was opened would be played again with other updates."""
    settings = stopped.config_file.read_text()
    edited = settings.replace("learning_rate = 0.1", "learning_rate = 0.2", 1)
    assert edited != settings
    stopped.config_file.write_text(edited)
    with pytest.raises(ConfigError, match=r"training.learning_rate was 0.1 and is 0.2"):
        TrainingRun.open(stopped)
    stopped.config_file.write_text(settings)
    with pytest.raises(ConfigError, match=r"seed was . and is 99"):
        TrainingRun.open(stopped, changes=["seed=99"])
    assert stopped.config_file.read_text() == settings


def test_more_rounds_may_be_asked_for(stopped: RunFolder) -> None:
    rounds = stopped.config().rounds + 1
    result = TrainingRun.open(stopped, changes=[f"rounds={rounds}"]).play()
    assert len(result.records) == rounds
    assert stopped.config().rounds == rounds


def test_a_noisy_round_is_not_repeated_with_another_update(tmp_path: Path) -> None:
    """Another processor can give other last digits: the noise would then be new, and two sums would average it out."""
    folder = RunFolder.open(begun(tmp_path / "run", "noise.kind=skellam", "cohort.minimum=4"))
    run = TrainingRun.open(folder)
    with MemoryFile(folder.memory_file, durable=False) as file:
        for name in find_federation(folder.config()).parts:
            for number in range(1, folder.config().rounds + 1):
                file.of(Client(name)).pledge(number, b"the input before the interruption")
    with pytest.raises(TrainingError, match=r"another input than before round \d was interrupted"):
        run.play()


def test_a_noisy_round_is_not_repeated_with_other_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The updates are the same, but the noise comes from another secret: both sums together would have less noise."""
    folder = RunFolder.open(begun(tmp_path / "run", "noise.kind=skellam", "rounds=1", "cohort.minimum=4", *EVERYBODY))
    crash_before_checkpoint(folder, 1, monkeypatch)
    with Ledger.open(folder.ledger_file) as ledger:
        assert ledger.revealed(1)
    folder.secret_file.write_bytes(bytes(SECRET_BYTES))
    with pytest.raises(InputError, match=r"clients\.secret is not the secret of this run"):
        TrainingRun.open(folder).play()
    forget_secret(folder)  # as in a checkpoint of an earlier version: the clients' memories remain
    with pytest.raises(TrainingError, match="another input than before round 1 was interrupted"):
        TrainingRun.open(folder).play()
    memory = folder.memory_file.read_bytes()
    folder.memory_file.write_bytes(b"")
    with pytest.raises(InputError, match=r"clients\.sqlite does not know the clients of the run"):
        TrainingRun.open(folder).play()
    folder.memory_file.write_bytes(memory)


def forget_secret(folder: RunFolder) -> None:
    """Take the digest of the clients' secret out of the checkpoint."""
    found = folder.checkpoint()
    assert found is not None
    assert found.progress.secret
    folder.save(Checkpoint(msgspec.structs.replace(found.progress, secret=""), found.state))


def test_a_run_whose_clients_lost_their_memory_does_not_continue(stopped: RunFolder) -> None:
    """With another secret, a repeated round would reveal its sum under other noise."""
    stopped.memory_file.unlink()
    with pytest.raises(InputError, match=r"clients\.sqlite is missing"):
        TrainingRun.open(stopped).play()


@pytest.mark.parametrize("variant", [(), VARIANTS["confined, additive"]])
def test_memories_that_lost_the_rounds_of_the_run_are_refused(tmp_path: Path, variant: tuple[str, ...]) -> None:
    """An emptied file, and a new one that clients wrote afterwards, are refused like a missing one."""
    folder = RunFolder.open(begun(tmp_path / "run", *variant, *EVERYBODY, "rounds=2"))
    assert TrainingRun.open(folder).play().summary.completed == 2
    memory = folder.memory_file.read_bytes()
    folder.memory_file.write_bytes(b"")
    with pytest.raises(InputError, match=r"clients\.sqlite does not know the clients of the run"):
        TrainingRun.open(folder, changes=["rounds=3"]).play()
    with MemoryFile(folder.memory_file, durable=False) as file:
        for name in find_federation(folder.config()).parts:
            file.of(Client(name))
    with pytest.raises(InputError, match=r"clients\.sqlite does not know round \d"):
        TrainingRun.open(folder).play()
    for left in tmp_path.glob("run/clients.sqlite*"):
        left.unlink()
    folder.memory_file.write_bytes(memory)
    assert len(TrainingRun.open(folder).play().records) == 3


def test_an_earlier_checkpoint_without_the_digest_of_the_secret_is_accepted(stopped: RunFolder) -> None:
    found = stopped.checkpoint()
    assert found is not None
    forget_secret(stopped)
    assert TrainingRun.open(stopped).play().summary.finished
    after = stopped.checkpoint()
    assert after is not None
    assert after.progress.secret == found.progress.secret == stopped.secret_digest()


@pytest.mark.parametrize(
    "change", [{"aggregated": []}, {"aggregated": ["client-01", "client-02"]}, {"outcome": "skipped"}]
)
def test_records_that_contradict_the_ledger_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    """Otherwise the T shown would belong to another history."""
    folder = RunFolder.open(begun(tmp_path / "run", *EVERYBODY, "rounds=2"))
    assert TrainingRun.open(folder).play().summary.completed == 2
    records = list(map(json.loads, folder.metrics_file.read_text().splitlines()))
    records[1] |= change
    folder.metrics_file.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    with pytest.raises(InputError, match=r"metrics\.jsonl contradicts the ledger in round 2"):
        TrainingRun.open(folder, changes=["rounds=3"]).play()


def test_client_secrets_are_readable_by_the_owner_only(stopped: RunFolder) -> None:
    for file in (stopped.secret_file, stopped.memory_file, stopped.checkpoint_file):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name


def test_two_processes_do_not_work_on_one_run(stopped: RunFolder) -> None:
    with locked(stopped.path), pytest.raises(ConfigError, match="another process is working"):
        TrainingRun.open(stopped).play()


def test_a_folder_without_a_run_and_one_that_has_a_run_already_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not the folder of a run"):
        RunFolder.open(tmp_path)
    begun(tmp_path / "run")
    with pytest.raises(ConfigError, match="holds a run already"):
        begun(tmp_path / "run")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write"):
        begun(tmp_path / "file")


@pytest.mark.slow
@pytest.mark.parametrize(("how", "status"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
def test_the_command_survives_kill_and_interrupt_with_worker_processes(
    tmp_path: Path, how: signal.Signals, status: int
) -> None:
    stopped = begun(tmp_path / "stopped", "training.executor=processes", "training.workers=2", "rounds=30")
    whole = tmp_path / "whole"
    shutil.copytree(stopped, whole)

    def resume(folder: Path) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-c", RESUME, str(folder)])

    process = resume(stopped)
    metrics = stopped / "metrics.jsonl"
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < 3:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(how)
    assert process.wait() == status
    assert len(RunFolder.open(stopped).records()) < 30
    for folder in (stopped, whole):
        assert resume(folder).wait() == 0
    assert content(stopped) == content(whole)


def without_setting(folder: RunFolder, line: str) -> None:
    """Remove a setting that earlier versions did not have from the file and the checkpoint of a run."""
    checkpoint = folder.checkpoint()
    assert checkpoint is not None
    earlier = checkpoint.progress.settings.replace(f"{line}\n", "")
    folder.save(Checkpoint(msgspec.structs.replace(checkpoint.progress, settings=earlier), checkpoint.state))
    folder.config_file.write_text(folder.config_file.read_text().replace(f"{line}\n", ""))
    assert line.split()[0] not in earlier + folder.config_file.read_text()


def test_a_run_of_an_earlier_version_keeps_its_colluders(tmp_path: Path) -> None:
    """There ``aggregation.collusion`` was a share of a session, which its settings do not say."""
    settings = [*SMALL, "rounds=1", "aggregation.threat=active-server", "aggregation.collusion=0.25"]
    new = load_config(None, settings)
    old = load_config(None, [*settings, "aggregation.collusion_of=session"])
    with pytest.raises(ConfigError, match="session is for runs that an earlier version began"):
        TrainingRun.begin(tmp_path / "new", old)
    folder = RunFolder.create(tmp_path / "old", old)
    TrainingRun(folder, build_run(old, find_federation(old))).play()
    without_setting(folder, 'collusion_of = "session"')

    run = TrainingRun.open(folder, changes=["rounds=2"])
    assert session_colluders(run.config.aggregation, 12, 6) == 1
    assert session_colluders(new.aggregation, 12, 6) == 3
    result = run.play()
    assert result.summary.promise.colluders == 1
    assert read_promise(folder.path).colluders == 1
    with pytest.raises(ConfigError, match="collusion_of was 'session' and is 'roster'"):
        TrainingRun.open(folder, changes=["aggregation.collusion_of=roster"])
    # The same file, with the setting of today, is that of a new run.
    assert load_config(folder.config_file, ["aggregation.collusion_of=roster"]).aggregation == new.aggregation


def test_a_run_of_an_earlier_version_keeps_the_papers_protocol(tmp_path: Path) -> None:
    """Its settings do not name a protocol; new runs take two trips, and give the same model."""
    settings = [*SMALL, *EVERYBODY, "training.schedule.kind=constant"]
    new = load_config(None, [*settings, "rounds=2"])
    old = load_config(None, [*settings, "rounds=1", "aggregation.protocol=papers"])
    folder = RunFolder.create(tmp_path / "old", old)
    config = folder.config()
    TrainingRun(folder, build_run(config, find_federation(config))).play()
    without_setting(folder, 'protocol = "papers"')

    run = TrainingRun.open(folder, changes=["rounds=2"])
    assert run.config.aggregation.protocol == "papers"
    run.play()
    with pytest.raises(ConfigError, match="protocol was 'papers' and is 'two-trips'"):
        TrainingRun.open(folder, changes=["aggregation.protocol=two-trips"])
    assert new.aggregation.protocol == "auto"
    TrainingRun.begin(tmp_path / "new", new).play()
    assert stored_model(tmp_path / "new") == stored_model(tmp_path / "old")
    uploads = [[record.upload_bytes for record in RunFolder.open(tmp_path / name).records()] for name in ("new", "old")]
    assert uploads[0] != uploads[1]
