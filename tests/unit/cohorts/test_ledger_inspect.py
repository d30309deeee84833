"""Inspection of a ledger: it sees all that was recorded and changes nothing."""

import os
from pathlib import Path

import pytest

from coterie.cohorts import ledger_inspection
from coterie.cohorts.ledger import Head, Ledger
from coterie.errors import ConfigError, InputError, LocalProtocolError

ENTRIES = 3


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.reveal(0, ["ann", "bob"], promised=2)
        ledger.complete(0)
        ledger.skip(1, "nobody was available")
    return tmp_path / "ledger.db"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_inspecting_changes_no_file(path: Path) -> None:
    before = contents(path.parent)
    with Ledger.inspect(path) as ledger:
        assert ledger.verify().sequence == ENTRIES
        assert ledger.frequencies() == {"ann": 1, "bob": 1}
        assert contents(path.parent) == before
        with pytest.raises(LocalProtocolError, match="opened to be inspected"):
            ledger.skip(20, "later")
    assert contents(path.parent) == before


def test_inspecting_sees_what_a_server_has_only_written_to_the_wal(path: Path) -> None:
    with Ledger.open(path) as example:
        head = example.skip(20, "later")
        before = contents(path.parent)
        assert before[f"{path.name}-wal"]
        with Ledger.inspect(f"sqlite:///{path}") as ledger:
            assert contents(path.parent) == before
            assert ledger.verify(head) == head
            example.skip(21, "after that")
            assert ledger.head() == head


def test_a_ledger_that_may_only_be_read_can_be_inspected(path: Path) -> None:
    path.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        with Ledger.inspect(path) as ledger:
            assert ledger.verify().sequence == ENTRIES
    finally:
        path.parent.chmod(0o700)


def test_a_copy_is_repeated_while_another_process_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[object] = []
    copy = ledger_inspection._copy_bytes

    def interrupted(source: str, target: Path, copied: int, limit: int | None) -> int:
        copied = copy(source, target, copied, limit)
        copies.append(source)
        if len(copies) <= writes:
            os.utime(path, ns=(0, len(copies)))
        return copied

    monkeypatch.setattr(ledger_inspection, "_copy_bytes", interrupted)
    writes = 3
    with Ledger.inspect(path) as ledger:
        assert ledger.verify().sequence == ENTRIES
    assert len(copies) == writes + 1
    writes = 1000
    with pytest.raises(ConfigError, match="try again"):
        Ledger.inspect(path)


def test_a_head_is_read_as_it_is_written() -> None:
    head = Head(12, "0a" * 32)
    assert Head.parse(str(head)) == head
    for wrong in ("", "12", "12:", f"-1:{head.digest}", f"12:{head.digest}0", f"12:{head.digest.upper()}", f" {head}"):
        with pytest.raises(InputError, match="SEQUENCE:DIGEST"):
            Head.parse(wrong)
