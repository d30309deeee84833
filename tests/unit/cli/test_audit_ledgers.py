"""``coterie audit`` of ledgers and of the folders of runs."""

import hashlib
import json
import sqlite3
from pathlib import Path

import pytest
from tests.support.audits import findings, run, write_ledger, write_pairs

from coterie.cohorts.ledger import EntryKind, Head, Ledger
from coterie.cohorts.ledger_entry import StoredEntry, encode


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write_pairs(tmp_path / "log.csv")
    return tmp_path / "log.csv"


def test_a_ledger_has_its_own_order(tmp_path: Path) -> None:
    write_ledger(tmp_path / "ledger.db")
    result = run(tmp_path / "ledger.db", "--keep-order")
    assert result.exit_code == 2
    assert "in the order in which it was written" in result.stderr


def test_a_ledgers_head_is_its_evidence(tmp_path: Path) -> None:
    write_ledger(tmp_path / "ledger.db")
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        head = str(ledger.head())
    evidence = findings(tmp_path / "ledger.db")["evidence"]
    assert (evidence["head"], evidence["sha256"]) == (head, "")


def test_the_folder_of_a_run_is_read_by_its_ledger_alone(tmp_path: Path) -> None:
    """It is read by its ledger alone: metrics do not say whether sums were secure, and no chain protects them."""
    record = {"round": 1, "outcome": "aborted after reveal", "selected": 3, "aggregated": ["a", "b"], "dropped": ["c"]}
    records = [{**record, "stranded": []}, {**record, "round": 2, "stranded": [], "outcome": "completed"}]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, records)))

    def refused(*arguments: str) -> str:
        result = run(tmp_path, "--require", "1", *arguments)
        assert result.exit_code == 2
        assert not result.stdout
        return result.stderr

    assert "without a config.toml" in refused()
    (tmp_path / "config.toml").write_text('[aggregation]\nkind = "secure"\n')
    assert "has no ledger.sqlite" in refused()
    for content in (b"", b"round,client\n1,a\n1,b\n"):
        (tmp_path / "ledger.sqlite").write_bytes(content)
        assert "ledger" in refused()
    (tmp_path / "ledger.sqlite").unlink()
    write_ledger(tmp_path / "ledger.sqlite")
    assert findings(tmp_path)["read"]["format"] == "ledger"
    assert "the folder of a run is read by its ledger: leave out --format" in refused("--format", "jsonl")
    (tmp_path / "config.toml").write_text('[aggregation]\nkind = "plain"\n')
    assert "in the clear" in refused()


def write_checkpoint(folder: Path, settings: str, head: Head | None = None) -> None:
    progress = json.dumps({"format": 1, "rounds": 2, "ledger": head, "settings": settings, "fingerprints": {}})
    header = json.dumps({"__metadata__": {"progress": progress}, "x": {"dtype": "F32", "shape": [0]}}).encode()
    (folder / "checkpoint.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)


def test_a_checkpoint_holds_the_aggregation_and_the_head_of_the_ledger(tmp_path: Path) -> None:
    write_ledger(tmp_path / "ledger.sqlite")
    (tmp_path / "config.toml").write_text('[aggregation]\nkind = "secure"\n')
    with Ledger.inspect(tmp_path / "ledger.sqlite") as ledger:
        head = ledger.head()
    write_checkpoint(tmp_path, "", head)
    assert findings(tmp_path)["read"]["format"] == "ledger"
    write_checkpoint(tmp_path, '[aggregation]\nkind = "plain"\n', head)
    result = run(tmp_path, "--require", "1")
    assert result.exit_code == 2
    assert "aggregation.kind is secure there, and plain in checkpoint.safetensors" in result.stderr
    write_checkpoint(tmp_path, "", Head(head.sequence + 1, "0" * 64))  # as of a ledger that lost its last entry
    assert run(tmp_path, "--require", "1").exit_code == 3
    (tmp_path / "checkpoint.safetensors").write_bytes(b"\xff" * 20)
    result = run(tmp_path, "--require", "1")
    assert result.exit_code == 2
    assert "header of checkpoint.safetensors" in result.stderr


def test_metrics_of_a_run_by_themselves_are_said_to_be_unverified(tmp_path: Path) -> None:
    record = {"round": 1, "outcome": "completed", "selected": 2, "aggregated": ["a", "b"], "stranded": []}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(record))
    said = "no ledger verifies them, and they do not say whether sums were secure"
    assert said in " ".join(run(tmp_path / "metrics.jsonl").stdout.split())
    assert any(said in note for note in findings(tmp_path / "metrics.jsonl")["notes"])
    (tmp_path / "other.jsonl").write_text('{"round": 1, "clients": ["a", "b"]}')
    assert said not in " ".join(run(tmp_path / "other.jsonl").stdout.split())


def test_a_ledger_with_its_skipped_and_broken_rounds(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.reveal(0, ["ann", "bob"], promised=2)
        ledger.complete(0)
        ledger.skip(1, "nobody was available")
        ledger.reveal(2, ["ann", "bob", "cyd", "dan"], promised=2)
        ledger.abort(2, "too few shares")
        ledger.abort(3, "too few masked inputs")
        head = ledger.head()
    found = findings(f"sqlite:///{path}", "--require", "2")
    assert (found["rounds"], found["strong_privacy"]) == (4, 2)
    assert found["cardinality"] == pytest.approx(6 / 4)
    assert found["notes"] == [
        "rounds announced but not completed, which count as revealed: 1",
        f"the ledger's chain of 6 entries holds; its head, to be kept elsewhere, is {head}",
        "assumes that each client's weight and form of contribution stay the same in every round",
    ]


@pytest.mark.parametrize("first", [b"", b"\x01"], ids=["an older version's rows", "another recipe"])
def test_a_ledger_with_several_recipes_does_not_meet_a_requirement(tmp_path: Path, first: bytes) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.reveal(1, ["ann", "bob", "cyd", "dan"], promised=4, recipe=first)
    assert run(path, "--require", "4").exit_code == 0
    with Ledger.open(path) as ledger:
        ledger.reveal(2, ["ann", "bob", "cyd", "dan"], promised=4, recipe=b"\x02")
    result = run(path, "--require", "4")
    assert result.exit_code == 1
    assert "Not shown: contributions were made by 2 different recipes" in result.stdout
    assert "T is not shown across them" in " ".join(result.stdout.split())
    assert findings(path, "--require", "4", status=1)["required"]["holds"] is False
    assert run(path).exit_code == 0


def test_auditing_a_ledger_writes_nothing(tmp_path: Path) -> None:
    write_ledger(tmp_path / "ledger.db")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert run(tmp_path / "ledger.db").exit_code == 1  # somebody is exposed
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_ledger_that_was_tampered_with_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    write_ledger(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE coterie_ledger SET body = replace(body, 'bob', 'eve') WHERE sequence = 1")
    connection.close()
    result = run(path)
    assert result.exit_code == 3
    assert "ledger entry 1" in result.stderr


def test_a_forged_second_reveal_of_a_round_is_refused(tmp_path: Path) -> None:
    """The chain is intact. Only the order of the entries of a round shows the forgery: a round is revealed once."""
    path = tmp_path / "ledger.db"
    write_ledger(path)
    with Ledger.open(path) as ledger:
        end = ledger.head()
    forged = StoredEntry(end.sequence + 1, 3, EntryKind.REVEAL, end.digest, ("cyd", "dan"), columns={"promised": 1})
    body = encode(forged)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE loose AS SELECT * FROM coterie_ledger")
        connection.execute("DROP TABLE coterie_ledger")
        connection.execute("ALTER TABLE loose RENAME TO coterie_ledger")
        values = (forged.sequence, 3, "reveal", end.digest, hashlib.sha256(body).hexdigest(), body)
        connection.execute("INSERT INTO coterie_ledger VALUES (?, ?, ?, ?, ?, ?)", values)
    connection.close()
    result = run(path)
    assert result.exit_code == 3
    assert f"ledger entry {forged.sequence}: round 3 cannot have this reveal" in result.stderr


def test_a_lost_tail_is_found_with_a_head_kept_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    write_ledger(path)
    with Ledger.open(path) as ledger:
        head = str(ledger.head())
    assert run(path, "--head", head).exit_code == 1  # somebody is exposed
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM coterie_ledger WHERE sequence >= 5")
    connection.close()
    assert run(path).exit_code == 0  # nothing inside a shorter chain can tell
    result = run(path, "--head", head)
    assert result.exit_code == 3
    assert "ledger entry 5: it is missing" in result.stderr
    assert run(path, "--head", "5:x").exit_code == 2


def test_only_a_ledger_has_a_head(log: Path) -> None:
    result = run(log, "--head", f"1:{'0' * 64}")
    assert result.exit_code == 2
    assert "only a ledger has a head" in result.stderr


def test_a_damaged_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        for number in range(20):
            ledger.reveal(number, [f"client-{member}" for member in range(300)], promised=2)
    content = bytearray(path.read_bytes())
    half = len(content) // 2
    content[half:] = b"\xff" * (len(content) - half)
    path.write_bytes(content)
    result = run(path)
    assert result.exit_code == 2
    assert "malformed" in result.stderr


def test_an_empty_ledger_reveals_nothing(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "ledger.db").close()
    result = run(tmp_path / "ledger.db", "--require", "5", "--html", tmp_path / "page.html")
    assert result.exit_code == 0
    assert "No client was ever aggregated" in result.stdout
    assert "It holds, since nothing was revealed" in result.stdout


@pytest.mark.parametrize("settings", ["x = " + "[" * 50_000, "x" + ".x" * 500_000 + " = 1", "\xff", "aggregation = 5"])
def test_settings_of_a_run_that_cannot_be_read_give_no_verdict(tmp_path: Path, settings: str) -> None:
    """They say whether the sums were secure. Without them, a run in the clear could get a good verdict."""
    (tmp_path / "metrics.jsonl").write_text('{"round": 1, "clients": ["a", "b"]}\n')
    (tmp_path / "config.toml").write_bytes(settings.encode("latin-1"))
    result = run(tmp_path)
    assert result.exit_code == 2, result.exception
    assert "config.toml" in result.output
