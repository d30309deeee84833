"""Logs, settings and folders of runs from somebody else: they are refused in one line, and run no program.

The promises are in docs/audit.md, "Exit status" (2: the log could not be read or understood; 70: an error in Coterie
itself), ``coterie.cli.main`` ("an error of Coterie becomes one clear line, not a traceback"), and
docs/security/hardening.md, "Files from somebody else".
"""

import importlib
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.support import hostile_files
from tests.support.commands import Ended, run_in

from coterie.cohorts import database_file, ledger_database
from coterie.errors import ConfigError, InputError
from coterie.explorer.audits import AuditSettings, audit_content
from coterie.runs.sections.extensions import find_named
from coterie.runs.storage.folder import Checkpoint, RunFolder

SMALL = (
    *("rounds=2", "clients.count=4", "cohort.size=4", "cohort.privacy=2", "model.name=softmax-regression"),
    *("availability.kind=equal", "availability.dropout=0.0"),
)
SHORT_HEADER = b"x\n1,a\n2,b\n2,a\n"
"""A header with fewer cells than the rows have."""
PROGRAM = "from pathlib import Path\nPath('ran').touch()\ndef load(): Path('ran').touch()\n"
"""A module that leaves a trace when it is imported, and when its function is called."""


def is_one_line(ended: Ended) -> bool:
    return ended.said.startswith("coterie: ") and ended.said.count("\n") == 1


def ends_in_one_line(ended: Ended) -> bool:
    """Return whether the error is the last line, after those that a run prints when it begins."""
    return "Traceback" not in ended.said and ended.said.splitlines()[-1].startswith("coterie: ")


@pytest.mark.parametrize("option", [("--round-column", "1"), ("--format", "pairs"), ("--format", "lists")])
def test_a_log_with_too_short_a_header_is_refused(option: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(SHORT_HEADER)
    ended = run_in(tmp_path, "audit", "log.csv", *option)
    assert "has no cell for column 2" in ended.said
    assert ended.status == 2
    assert is_one_line(ended)


@pytest.mark.parametrize("settings", [AuditSettings(round_column="1"), AuditSettings(format="pairs")])
def test_the_page_refuses_a_log_with_too_short_a_header(settings: AuditSettings) -> None:
    with pytest.raises(InputError, match="has no cell for column 2"):
        audit_content(settings, SHORT_HEADER)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="training needs coterie[train]")
    folder = tmp_path_factory.mktemp("runs")
    ended = run_in(folder, "run", *(word for one in SMALL for word in ("--set", one)), "--out", "run")
    assert ended.status == 0, ended.said
    return folder / "run"


@pytest.fixture
def run(played: Path, tmp_path: Path) -> Path:
    """A run of somebody else, in the folder ``run`` of the current folder."""
    return Path(shutil.copytree(played, tmp_path / "run"))


def schema_of_ledger(folder: Path) -> None:
    """Write an invalid byte into the schema: SQLite quotes it in its error, and Python cannot decode that."""
    _replace(folder / "ledger.sqlite", b"PRIMARY KEY (sequence)", b"PRIMARY KEY (se\xd3uence)")


def schema_of_memories(folder: Path) -> None:
    _replace(folder / "clients.sqlite", b"PRIMARY KEY", b"PRIMARY \x85EY")


def text_of_ledger(folder: Path) -> None:
    """Write an invalid byte into the digest of an entry."""
    with sqlite3.connect(folder / "ledger.sqlite") as ledger:
        (found,) = ledger.execute("SELECT digest FROM coterie_ledger ORDER BY sequence DESC LIMIT 1").fetchone()
    ledger.close()
    _replace(folder / "ledger.sqlite", found.encode()[:20], found.encode()[:10] + b"\xb2" + found.encode()[11:20])


def pages_of_memories(folder: Path) -> None:
    """Overwrite pages of the clients' memories."""
    path = folder / "clients.sqlite"
    content = path.read_bytes()
    path.write_bytes(content[:8192] + bytes([7]) * (len(content) - 8192))


def index_of_ledger(folder: Path) -> None:
    """Overwrite a page that is used only when an entry is added."""
    _spoil_index(folder / "ledger.sqlite", "coterie_ledger", "digest")


def index_of_memories(folder: Path) -> None:
    _spoil_index(folder / "clients.sqlite", "sessions", "client")


def _spoil_index(path: Path, table: str, column: str) -> None:
    """Overwrite the index of a table whose first column is this one."""
    query = (
        "SELECT rootpage FROM sqlite_master AS entry, pragma_index_info(entry.name) AS part"
        " WHERE entry.type = 'index' AND entry.tbl_name = ? AND part.seqno = 0 AND part.name = ?"
    )
    with sqlite3.connect(path) as database:
        (page,) = database.execute(query, (table, column)).fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
    database.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(bytes([7]) * size)


def _replace(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    assert len(old) == len(new)
    path.write_bytes(content.replace(old, new))


@pytest.mark.parametrize(
    "damage",
    [
        *(schema_of_ledger, text_of_ledger, index_of_ledger),
        *(schema_of_memories, pages_of_memories, index_of_memories),
    ],
)
@pytest.mark.parametrize("command", ["resume", "audit", "compare"])
def test_a_damaged_database_is_refused_in_one_line(command: str, damage: Callable[[Path], None], run: Path) -> None:
    damage(run)
    more = ("--set", "rounds=3") if command == "resume" else ()
    ended = run_in(run.parent, command, "run", *more)
    if command == "resume":  # the other two do not read the clients' memories
        assert ended.status in (2, 3), ended.said
    assert ended.status in (0, 1) or (ended.status in (2, 3) and ends_in_one_line(ended)), ended.said


def test_settings_name_no_program_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(
        '[data]\nname = "subprocess:getoutput"\noptions = {cmd = "echo done > by-a-settings-file"}\n'
    )
    ended = run_in(tmp_path, "run", "settings.toml", "--out", "run")
    assert "the module subprocess is not a file of the current folder" in ended.said
    assert ended.status == 2
    assert not (tmp_path / "by-a-settings-file").exists()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder, from which modules may be imported."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return here


@pytest.mark.parametrize(
    "name",
    [
        *("sys:exit", "subprocess:getoutput", "importlib:import_module", "os.path:exists", "yaml:unsafe_load"),
        *("linked:load", "linked_package:load", "linked_package.inner:load", "namespace.linked:load"),
        *("installed_here:load", "json:load", "__main__:load", "xml.inner:load"),
    ],
)
def test_only_files_of_the_current_folder_can_be_named(name: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside, libraries = here.parent / "outside", here / "venv" / "lib" / "python3.11" / "site-packages"
    for folder in outside / "package", libraries, here / "namespace", here / "xml":
        folder.mkdir(parents=True)
    for file in (
        *(outside / "linked.py", outside / "package" / "__init__.py", outside / "package" / "inner.py"),
        *(libraries / "installed_here.py", here / "json.py", here / "xml" / "inner.py"),
    ):
        file.write_text(PROGRAM)
    (here / "linked.py").symlink_to(outside / "linked.py")
    (here / "namespace" / "linked.py").symlink_to(outside / "linked.py")
    (here / "linked_package").symlink_to(outside / "package")
    monkeypatch.setattr(sys, "path", [*sys.path, str(libraries)])  # a virtual environment in the current folder
    importlib.import_module("json")
    importlib.import_module("xml")
    with pytest.raises(ConfigError, match=r"data.name: (the module|there is no module) "):
        find_named("data.name", name)
    assert not (here / "ran").exists()


def test_what_a_file_of_the_current_folder_imports_can_be_named(here: Path) -> None:
    """The author of the file chose it; docs/security/hardening.md says so."""
    (here / "chosen_by_me.py").write_text("from subprocess import getoutput\n")
    (here / "packed").mkdir()
    (here / "packed" / "deep.py").write_text(PROGRAM)
    (here / "linked_inside.py").symlink_to("packed/deep.py")
    assert find_named("data.name", "chosen_by_me:getoutput")("echo hello") == "hello"
    assert callable(find_named("data.name", "packed.deep:load"))
    assert callable(find_named("data.name", "linked_inside:load"))


def name_data(run: Path, name: str, options: str = "{}") -> None:
    """Change the data that a run names, and delete the checkpoint, which has the settings that it began with."""
    for file in run.iterdir():
        if file.name != "config.toml":
            file.unlink()
    settings = (run / "config.toml").read_text()
    settings = settings.replace('name = "digits"', f'name = "{name}"', 1)
    (run / "config.toml").write_text(settings.replace("options = {}", f"options = {options}", 1))


def test_a_folder_of_a_run_names_no_program_of_the_machine(run: Path) -> None:
    name_data(run, "subprocess:getoutput", '{cmd = "echo done > by-a-run-folder"}')
    ended = run_in(run.parent, "resume", "run")
    assert (ended.status, is_one_line(ended)) == (2, True), ended.said
    assert not (run.parent / "by-a-run-folder").exists()


@pytest.mark.parametrize(
    ("name", "current", "folder"),
    [
        ("run.program:load", "..", "run"),
        ("run:load", "..", "run"),
        ("program:load", ".", "."),
        ("inner.program:load", ".", "."),
        ("program:load", "inner", ".."),
    ],
)
def test_no_program_in_the_folder_of_a_run_is_run(name: str, current: str, folder: str, run: Path) -> None:
    """The file is in the current folder, and in the folder of the run as well."""
    name_data(run, name)
    (run / "inner").mkdir()
    for file in "__init__.py", "program.py", "inner/program.py":
        (run / file).write_text(PROGRAM)
    ended = run_in((run / current).resolve(), "resume", folder)
    assert "no code is run from there" in ended.said
    assert (ended.status, is_one_line(ended)) == (2, True), ended.said
    assert not list(run.parent.rglob("ran"))


@pytest.mark.parametrize("command", ["resume", "compare"])
@pytest.mark.parametrize("name", ["checkpoint.safetensors", "metrics.jsonl", ".lock"])
def test_a_folder_of_a_run_with_a_pipe_or_a_device_is_refused(command: str, name: str, run: Path) -> None:
    """The command would wait forever for somebody who writes into the pipe, or read a device without end."""
    for place in (lambda path: os.mkfifo(path), lambda path: path.symlink_to("/dev/zero")):
        (run / name).unlink()
        place(run / name)
        ended = run_in(run.parent, command, "run")
        assert f"{name} is not a plain file" in ended.said
        assert (ended.status, is_one_line(ended)) == (2, True), ended.said


DATABASES = [("ledger.sqlite", "coterie_ledger"), ("clients.sqlite", "sessions")]


@pytest.mark.parametrize("defended", [False, True])
@pytest.mark.parametrize("name", ["ledger.sqlite", "clients.sqlite"])
def test_resuming_somebody_elses_run_deletes_no_file_of_the_user(
    name: str, defended: bool, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal beside a database names the file, and SQLite deletes it when it opens the database."""
    if not defended:
        monkeypatch.setattr(database_file, "check_journal", lambda _path: None)
        monkeypatch.setattr(ledger_database, "check_journal", lambda _path: None)
    mine = run.parent / "mine"
    mine.write_text("what I wrote")
    hostile_files.journal_of_another_file(run / name, mine)
    ended = run_in(run.parent, "resume", "run", "--set", "rounds=3")
    assert mine.exists() is defended
    assert (ended.status, ends_in_one_line(ended)) == ((2, True) if defended else (0, False)), ended.said
    assert ("names another file, which SQLite would delete" in ended.said) is defended


@pytest.mark.parametrize("command", ["audit", "compare"])
@pytest.mark.parametrize("name", ["ledger.sqlite", "clients.sqlite"])
def test_audits_and_comparisons_delete_no_file_of_the_user(command: str, name: str, run: Path) -> None:
    mine = run.parent / "mine"
    mine.write_text("what I wrote")
    hostile_files.journal_of_another_file(run / name, mine)
    run_in(run.parent, command, "run")
    assert mine.exists()


@pytest.mark.parametrize("defended", [False, True])
@pytest.mark.parametrize(("name", "table"), DATABASES)
def test_a_database_of_a_run_runs_no_statements_of_its_own(
    name: str, table: str, defended: bool, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not defended:
        monkeypatch.setattr(database_file, "check_schema", lambda *_: None)
        monkeypatch.setattr(ledger_database, "check_schema", lambda *_: None)
    hostile_files.trigger_on(run / name, table)
    ended = run_in(run.parent, "resume", "run", "--set", "rounds=3")
    with sqlite3.connect(run / name) as database:
        (traces,) = database.execute("SELECT count(*) FROM trace").fetchone()
    database.close()
    assert (traces == 0) is defended
    assert ended.status == (2 if defended else 0), ended.said


@pytest.mark.parametrize(("name", "table"), DATABASES)
def test_a_database_of_a_run_with_an_endless_view_is_refused(name: str, table: str, run: Path) -> None:
    """Without the rule, resuming such a run never ends, and fills the memory."""
    hostile_files.view_of(run / name, table)
    ended = run_in(run.parent, "resume", "run", "--set", "rounds=3")
    assert f"has the view {table!r}, and Coterie makes only plain tables" in ended.said
    assert (ended.status, ends_in_one_line(ended)) == (2, True), ended.said


@pytest.mark.parametrize("command", ["audit", "compare"])
@pytest.mark.parametrize("setting", ["data.name", "model.name", "cohort.policy", "aggregation.topology"])
def test_audits_and_comparisons_import_nothing_that_a_folder_names(command: str, setting: str, run: Path) -> None:
    section, _, key = setting.partition(".")
    (run.parent / "program.py").write_text(PROGRAM)
    folder = RunFolder.open(run)
    found = folder.checkpoint()
    assert found is not None
    changed = re.sub(
        rf'(?ms)(^\[{section}\]$.*?^{key}) = ".*?"', r'\1 = "program:load"', found.progress.settings, count=1
    )
    assert 'program:load"' in changed
    folder.config_file.write_text(changed)
    folder.save(Checkpoint(msgspec.structs.replace(found.progress, settings=changed), found.state))
    ended = run_in(run.parent, command, "run")
    assert ended.status in (0, 1, 2), ended.said
    assert not (run.parent / "ran").exists()


@pytest.mark.parametrize("name", ["metrics.csv", "ledger.sqlite", "sums"])
def test_a_folder_of_a_run_leads_to_no_file_outside(name: str, run: Path) -> None:
    """A link in it to a file of the user would be written through."""
    mine = run.parent / "mine"
    mine.write_text("what I wrote")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(mine)
    ended = run_in(run.parent, "resume", "run", "--set", "rounds=3")
    assert (ended.status, is_one_line(ended)) == (2, True), ended.said
    assert f"{name} is a symbolic link" in ended.said
    assert mine.read_text() == "what I wrote"


@pytest.mark.parametrize("name", ["metrics.csv", "ledger.sqlite"])
def test_a_new_run_in_a_folder_of_somebody_else_writes_to_no_file_outside(name: str, tmp_path: Path) -> None:
    (tmp_path / "prepared").mkdir()
    (tmp_path / "prepared" / name).symlink_to(tmp_path / "mine")
    (tmp_path / "mine").write_bytes(b"")
    ended = run_in(tmp_path, "run", *(word for one in SMALL for word in ("--set", one)), "--out", "prepared")
    assert "is a symbolic link" in ended.said
    assert (ended.status, ends_in_one_line(ended)) == (2, True), ended.said
    assert (tmp_path / "mine").read_bytes() == b""


def test_a_run_of_the_user_is_resumed_with_functions_of_the_current_folder(tmp_path: Path) -> None:
    """The folder of the run has the name of the module, and is beside it."""
    pytest.importorskip("torch", reason="training needs coterie[train]")
    (tmp_path / "trial.py").write_text("from tests.support.user_code import load_clients, make_model\n")
    (tmp_path / "settings.toml").write_text(
        'rounds = 1\ndata = "trial:load_clients"\nmodel = "trial:make_model"\n'
        "[clients]\ncount = 6\n[cohort]\nsize = 4\nprivacy = 2\n"
    )
    assert run_in(tmp_path, "run", "settings.toml", "--out", "trial").status == 0
    ended = run_in(tmp_path, "resume", "trial", "--set", "rounds=2")
    assert ended.status == 0, ended.said
    assert len(RunFolder.open(tmp_path / "trial").records()) == 2


DEEP = {"lists": "a = " + "[" * 5000 + "\n", "keys": ".".join(["a"] * 5000) + " = 1\n"}


@pytest.mark.parametrize("deep", DEEP)
@pytest.mark.parametrize("command", ["run", "resume", "compare", "audit"])
def test_settings_that_are_nested_too_deeply_are_refused_in_one_line(command: str, deep: str, run: Path) -> None:
    (run / "config.toml").write_text(DEEP[deep])
    ended = run_in(run.parent, command, "run/config.toml" if command == "run" else "run")
    assert "nested too deeply" in ended.said
    assert (ended.status, is_one_line(ended)) == (2, True), ended.said


@pytest.mark.parametrize("settings", [*DEEP.values(), "a = ["])
@pytest.mark.parametrize("command", ["resume", "compare", "audit"])
def test_a_checkpoint_with_bad_settings_is_refused_in_one_line(command: str, settings: str, run: Path) -> None:
    folder = RunFolder.open(run)
    found = folder.checkpoint()
    assert found is not None
    folder.save(Checkpoint(msgspec.structs.replace(found.progress, settings=settings), found.state))
    ended = run_in(run.parent, command, "run")
    assert "Traceback" not in ended.said
    assert command == "compare" or (ended.status, is_one_line(ended)) == (2, True), ended.said
