"""``coterie audit``: any log, one verdict, and an exit status that a pipeline can rely on."""

import hashlib
import json
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tests.support.audits import ROUNDS, findings, run, write_ledger, write_pairs
from tests.support.commands import refusal_of
from tests.support.interpreter import printed_by

from coterie.auditing.auditor import Auditor, AuditReport
from coterie.auditing.settings import LogSettings
from coterie.cli import audit as command
from coterie.cli import audit_output, main
from coterie.cli.audit_input import LogInput
from coterie.errors import ConfigError
from coterie.version import __version__

CLIENTS = sorted({client for members in ROUNDS.values() for client in members})
SAFE = "1,a\n1,b\n1,c\n1,d\n2,c\n2,d\n2,e\n2,f\n"  # strong T = 2, weak T = 4


def write_matrix(path: Path) -> None:
    rows = [",".join(["round", *CLIENTS])]
    rows += [",".join([str(number), *(str(int(name in who)) for name in CLIENTS)]) for number, who in ROUNDS.items()]
    path.write_text("\n".join(rows))


def write_jsonl(path: Path) -> None:
    path.write_text("\n".join(json.dumps({"round": number, "clients": who}) for number, who in ROUNDS.items()))


def write_npz(path: Path) -> None:
    matrix = np.array([[name in who for name in CLIENTS] for who in ROUNDS.values()])
    with path.open("wb") as file:
        np.savez(file, matrix=matrix, clients=np.array(CLIENTS), rounds=np.array(list(ROUNDS)))


FORMATS: dict[str, Callable[[Path], None]] = {
    "csv": write_pairs,
    "pairs": write_pairs,
    "matrix": write_matrix,
    "jsonl": write_jsonl,
    "npz": write_npz,
    "ledger": write_ledger,
}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write_pairs(tmp_path / "log.csv")
    return tmp_path / "log.csv"


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("format_name", FORMATS)
def test_every_format_gives_the_same_findings(format_name: str, named: bool, tmp_path: Path) -> None:
    FORMATS[format_name](tmp_path / "log")
    found = findings(tmp_path / "log", *(["--format", format_name] if named else []))
    assert (found["clients"], found["rounds"]) == (5, 3)
    assert (found["strong_privacy"], found["weak_privacy"], found["weak_privacy_exact"]) == (1, 1, True)
    assert [(entry["client"], entry["round"]) for entry in found["exposed"]] == [("eve", 3)]
    assert found["fairness_gap"] == pytest.approx(1 / 3)
    assert found["cardinality"] == pytest.approx(3)
    assert found["frequency"]["eve"] == 1


def test_an_array_without_names_is_numbered(tmp_path: Path) -> None:
    np.save(tmp_path / "log.npy", np.array([[1, 1, 0], [0, 1, 0]]))
    assert findings(tmp_path / "log.npy", "--format", "npy")["exposed"][0]["client"] == "1"


def test_witnesses_are_exact(log: Path) -> None:
    for entry in findings(log)["exposed"]:
        total = dict.fromkeys(CLIENTS, Fraction(0))
        for term in entry["witness"]:
            for client in ROUNDS[term["round"]]:
                total[client] += Fraction(term["coefficient"])
        assert {client: value for client, value in total.items() if value} == {entry["client"]: 1}


def test_the_series_go_with_the_rounds(log: Path) -> None:
    found = findings(log)
    assert found["series"]["round"] == [1, 2, 3]
    assert found["series"]["strong_privacy"] == [4, 2, 1]
    assert found["series"]["exposed"] == [0, 0, 1]
    assert found["series"]["cardinality"][-1] == found["cardinality"]
    assert found["series"]["fairness_gap"][-1] == found["fairness_gap"]


def test_auditing_a_log_does_not_import_the_database_library(log: Path) -> None:
    """Importing it takes a third of the time of a small audit."""
    program = (
        f"import sys; from typer.testing import CliRunner; from coterie.cli import app\n"
        f"result = CliRunner().invoke(app, ['audit', {str(log)!r}])\n"
        f"print(result.exit_code, 'sqlalchemy' in sys.modules)"
    )
    assert printed_by(program) == "1 False\n"


def test_the_verdict_and_its_witness_are_printed_in_words(log: Path) -> None:
    result = run(log)
    assert result.exit_code == 1
    lines = result.stdout.strip().splitlines()
    assert (
        lines[lines.index("") + 1]
        == "✗ 1 of 5 clients is exposed: the server can compute its individual update (eve, since round 3)."
    )
    assert "−round 1 + round 2 + round 3 = eve's update" in result.stdout
    assert "What to do" in result.stdout
    assert not result.stderr


def test_a_safe_log_on_standard_input_passes() -> None:
    result = run("-", "--require", "2", stdin=SAFE)
    assert result.exit_code == 0
    assert (
        "No client can be singled out by adding and subtracting sums: every sum hides at least 2 clients"
        in result.stdout
    )
    assert "It holds" in result.stdout


def test_a_strong_t_of_one_is_reported_before_single_sums() -> None:
    """Nobody is exposed: a pipeline that asks for nothing passes, and one that asks for T = 2 does not."""
    result = run("-", stdin="1,a\n1,b\n2,b\n2,c\n")
    assert result.exit_code == 0
    assert "! Strong T is 1: 3 of 3 clients have a unique history. No client is exposed yet." in result.stdout
    assert "The least that can be computed" not in result.stdout
    assert run("-", "--require", "2", stdin="1,a\n1,b\n2,b\n2,c\n").exit_code == 1
    both = "".join(f"{number},{client}\n" for number in (1, 2) for client in "pqrs")
    shown = run("-", stdin="1,a\n2,b\n" + both).stdout
    assert "The least that can be computed: −round 1 + round 2 = −a's update + b's update" in shown


def test_exposure_fails_unless_only_a_report_is_wanted(log: Path) -> None:
    assert run(log).exit_code == 1
    assert run(log, "--require", "1").exit_code == 1
    assert run(log, "--report-only").exit_code == 0
    assert run(log, "--report-only", "--require", "4").exit_code == 0
    assert run("-", "--report-only", stdin="round,client\n1,a\n2\n").exit_code == 2
    assert findings(log, "--report-only", status=0)["level"] == "danger"


@pytest.mark.parametrize(
    ("arguments", "holds"),
    [
        (["--require", "2"], True),
        (["--require", "3"], False),
        (["--require", "4", "--weak"], True),
        (["--require", "5", "--weak"], False),
        (["--require", "1", "--collusion", "1"], True),
        (["--require", "2", "--collusion", "1"], False),
    ],
)
def test_the_exit_status_says_whether_the_requirement_holds(arguments: list[str], holds: bool) -> None:
    found = findings("-", *arguments, stdin=SAFE, status=0 if holds else 1)
    assert found["required"]["holds"] is holds
    assert found["required"]["privacy"] == int(arguments[1])
    assert found["required"]["weak"] is ("--weak" in arguments)
    shown = run("-", *arguments, stdin=SAFE)
    assert shown.exit_code == (0 if holds else 1)
    assert ("It holds" in shown.stdout) is holds


def test_an_undecided_requirement_fails() -> None:
    result = run("-", "--require", "3", "--weak", "--weak-seconds", "0", stdin=SAFE)
    assert result.exit_code == 1
    assert "Not decided in time: T is between 2 and 4" in result.stdout
    assert findings("-", "--weak-seconds", "0", stdin=SAFE)["weak_privacy_exact"] is False


def test_groups_below_the_requirement_are_named() -> None:
    groups = "".join(f"{number},c{number}{member}\n" for number in range(8) for member in "abcdefg"[: 2 + number % 6])
    result = run("-", "--require", "9", stdin=groups)
    assert "Too small a group: c0a, c0b (2)" in result.stdout
    assert "(6)" not in result.stdout  # only the smallest five
    assert "... and 3 more" in result.stdout


def test_the_effect_of_collusion_is_reported() -> None:
    found = findings("-", "--collusion", "1", stdin=SAFE)
    assert found["collusion"]["strong_privacy"] == 1
    assert found["collusion"]["unprotected"] == list("abcdef")
    assert "6 of 6 clients could be alone" in run("-", "--collusion", "1", stdin=SAFE).stdout


def test_unreadable_lines_are_named_and_make_the_verdict_unsafe() -> None:
    text = "round,client\n" + SAFE + "".join(f"garbage{number}\n" for number in range(7))
    result = run("-", "--require", "2", stdin=text)
    assert result.exit_code == 2
    assert "7 lines could not be read; do not rely on the verdict" in result.stderr
    assert "line 10: a round and a client are expected: garbage0" in result.stderr
    assert "... and 2 more" in result.stderr
    found = findings("-", stdin=text, status=2)
    assert found["unreadable"]["lines"] == 7
    assert found["unreadable"]["first"][0]["line"] == 10
    assert run("-", "--require", "3", stdin=text).exit_code == 2  # what is missing may have made it worse


def test_notes_are_in_the_preview_or_on_stderr() -> None:
    result = run("-", "--json", stdin="1,a\n3,a\n3,b\n")
    assert "Note: 1 round numbers never occur" in result.stderr
    assert json.loads(result.stdout)["notes"]
    shown = run("-", stdin="1,a\n3,a\n3,b\n")
    assert "1 round numbers never occur" in shown.stdout
    assert not shown.stderr


def test_the_preview_comes_before_the_verdict_and_says_what_was_left_out() -> None:
    text = "server_round,cid,status,loss\n1,a,ok,1\n1,b,ok,2\n1,c,dropped,3\n2,a,ok,4\n2,b,ok,5\n"
    shown = run("-", stdin=text).stdout
    preview, _, verdict = shown.partition("\n\n")
    for words in (
        "Read as     pairs",
        "Rounds      2: 1 to 2, from column server_round",
        "Clients     2 clients: a, b, from column cid",
        "Round 1     2 clients: a, b",
        "Left out    1 row: status = dropped (1)",
        "Ignored     1 column: loss",
    ):
        assert words in preview
    assert verdict.startswith("✓")
    read = findings("-", stdin=text)["read"]
    assert read == {
        "format": "pairs",
        "rounds": "column server_round",
        "clients": "column cid",
        "ignored": ["loss"],
        "left_out": {"status = dropped": 1},
        "order": "number",
        "duplicates": {"count": 0, "first": []},
        "contradictions": {"count": 0, "first": []},
        "first_rounds": [
            {"round": 1, "clients": ["a", "b"], "of": 2},
            {"round": 2, "clients": ["a", "b"], "of": 2},
        ],
    }


def test_duplicates_and_contradictions_are_in_every_output(tmp_path: Path) -> None:
    text = "round,client,status\n1,a,ok\n1,b,ok\n" + "1,a,ok\n" * 500 + "2,a,ok\n2,b,ok\n2,b,dropped\n"
    page = tmp_path / "page.html"
    shown = run("-", "--html", page, stdin=text)
    assert shown.exit_code == 0
    repeated = "500 mentions of a client that its round has already; each counts once: a in round 1"
    contradicted = "both aggregated and lost, by different rows; they count as aggregated: b in round 2"
    for place in (" ".join(shown.stdout.split()), " ".join(page.read_text("utf-8").split())):
        assert repeated in place
        assert contradicted in place
    read = findings("-", stdin=text)["read"]
    assert read["duplicates"] == {"count": 500, "first": [{"round": 1, "client": "a"}]}
    assert read["contradictions"] == {"count": 1, "first": [{"round": 2, "client": "b"}]}


def test_rounds_are_in_the_order_of_their_times() -> None:
    """The log lists the last day first; that day's sum exposes c."""
    days = {"2025-03-03": "abc", "2025-03-01": "ab", "2025-03-02": "ab"}
    text = "timestamp,client\n" + "".join(f"{day},{name}\n" for day, names in days.items() for name in names)
    shown = run("-", "--round-column", "timestamp", stdin=text).stdout
    assert "(c, since round 2025-03-03)" in shown
    assert "3: 2025-03-01 to 2025-03-03, from column timestamp, by date" in shown
    found = findings("-", "--round-column", "timestamp", "--keep-order", stdin=text)
    assert found["exposed"][0]["round"] == "2025-03-01"
    assert found["read"]["order"] == "place in the log"
    assert found["evidence"]["options"] == {"--round-column": "timestamp", "--keep-order": True}
    unclear = run("-", "--round-column", "timestamp", stdin=text.replace("2025-03-0", "03/04/200"))
    assert unclear.exit_code == 2
    assert "does not say which number is the month" in unclear.stderr


def test_the_verdict_has_the_evidence_of_its_input(log: Path, tmp_path: Path) -> None:
    options = ["--require", "2", "--where", "client=*", "--format", "pairs"]
    found = findings(log, *options, "--html", tmp_path / "page.html")
    digest = hashlib.sha256(log.read_bytes()).hexdigest()
    assert found["evidence"] == {
        "source": "log.csv",
        "sha256": digest,
        "size": log.stat().st_size,
        "head": "",
        "version": __version__,
        "options": {"--format": "pairs", "--where": ["client=*"], "--require": 2},
    }
    page = (tmp_path / "page.html").read_text("utf-8")
    assert digest in page
    assert "--format pairs --where client=* --require 2" in page
    assert f"coterie {__version__}" in page


def test_columns_and_rows_can_be_chosen() -> None:
    text = "iteration,round,device,user,event,run\n" + "".join(
        f"{step},9,{device},u,{event},{number}\n"
        for number in (1, 2)
        for step in (1, 2)
        for device in "ab"
        for event in ("uploaded", "merged")
    )
    chosen = ["--round-column", "iteration", "--client-column", "device"]
    assert run("-", stdin=text).exit_code == 2
    assert run("-", *chosen, stdin=text).exit_code == 2
    found = findings("-", *chosen, "--where", "event=merged", "--where", "run=1", stdin=text)
    assert (found["rounds"], found["clients"], found["strong_privacy"]) == (2, 2, 2)
    assert sum(found["read"]["left_out"].values()) == 12
    assert run("-", "--where", "event", stdin=text).exit_code == 2
    assert "no column evnt" in run("-", *chosen, "--where", "evnt=merged", stdin=text).stderr


def test_an_encoding_can_be_named(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_bytes("round,client\n1,Zoë\n1,José\n".encode("latin-1"))
    assert run(log).exit_code == 2
    assert findings(log, "--encoding", "latin-1")["read"]["first_rounds"][0]["clients"] == ["Zoë", "José"]
    assert run(log, "--encoding", "klingon").exit_code == 2
    assert run(log, "--encoding", "zlib").exit_code == 2


def test_weak_t_is_given_time_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: list[float] = []
    report = Auditor.report

    def spy(self: Auditor, *, weak_budget_seconds: float, collusion: int) -> AuditReport:
        budgets.append(weak_budget_seconds)
        return report(self, weak_budget_seconds=weak_budget_seconds, collusion=collusion)

    monkeypatch.setattr(Auditor, "report", spy)
    run("-", stdin=SAFE)
    run("-", "--require", "2", stdin=SAFE)
    run("-", "--require", "2", "--weak", stdin=SAFE)
    run("-", "--weak-seconds", "7", stdin=SAFE)
    assert budgets == [2, 2, 60, 7]


def test_progress_is_logged_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_output, "_TELL_SECONDS", 0.0)
    result = run("-", "--json", stdin=SAFE)
    json.loads(result.stdout)
    assert re.search(r"Rounds: 50% after \d+ s, about \d+ s left", result.stderr)
    assert "Weak T takes at most 2 s more" in result.stderr


def test_reading_a_long_log_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_output, "_TELL_SECONDS", 0.0)
    monkeypatch.setattr("coterie.auditing.logs.lines._BETWEEN", 2000)
    rows = "".join(f"{number // 100},client-{number % 100:04}\n" for number in range(10_000))
    result = run("-", "--json", "--format", "pairs", stdin="round,client\n" + rows)
    json.loads(result.stdout)
    shown = [int(part) for part in re.findall(r"Reading: (\d+)% after \d+ s, about \d+ s left", result.stderr)]
    assert len(shown) == 5
    assert shown == sorted(shown)
    assert 15 < shown[0] < 30


def test_an_interrupted_audit_says_so_and_promises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.auditing.auditor.Auditor.find_exposed", interrupt)
    result = run("-", "--require", "1", stdin=SAFE)
    assert result.exit_code == 130
    assert "The audit was interrupted: 0 exposed clients found so far" in result.stdout
    assert "Not shown: the audit was interrupted" in result.stdout


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_leaves_out_witnesses_that_are_not_computed_yet(
    as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may take long, and everything else is known."""
    monkeypatch.setattr(Auditor, "_witness", interrupt)
    monkeypatch.setattr(audit_output, "_LONG", 2)
    out = tmp_path / "exposed.csv"
    result = run("-", "--exposed", str(out), *["--json"] * as_json, stdin="1,a\n1,b\n2,b\n")
    assert result.exit_code == 1
    assert "Ctrl-C continues without it" in result.stderr
    assert out.read_text() == "client,since_round\na,2\nb,2\n"
    if as_json:
        found = json.loads(result.stdout)
        assert [one["witness"] for one in (*found["exposed"], found["leak"])] == [None, None, None]
    else:
        assert len(re.findall(r"^[ab] +2 +not computed", result.stdout, re.MULTILINE)) == 2
        assert "What to do" in result.stdout


def test_ctrl_c_while_a_log_is_read_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LogInput, "read", interrupt)
    monkeypatch.setattr("sys.argv", ["coterie", "audit", str(tmp_path / "log.csv")])
    with pytest.raises(SystemExit, match="130"):
        main()
    assert capsys.readouterr().err == "coterie: interrupted\n"


def test_a_name_that_ends_in_a_backslash_is_shown_as_it_is() -> None:
    result = run("-", stdin="round,client\n1,ann\\\n1,bob\n2,bob\n")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    (shown,) = [line for line in lines if line.startswith("ann\\")]
    assert shown.split()[0] == "ann\\"
    assert not any("ann\\\\" in line for line in lines)


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x93NUMPY broken", b"SQLite format 3\0 broken" + bytes(200)])
def test_an_unreadable_log_gives_no_verdict(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(content)
    result = run(tmp_path / "log", "--require", "1")
    assert result.exit_code == 2
    assert result.stderr.startswith("coterie: ")
    assert not result.stdout


def test_a_source_without_a_log_is_refused(tmp_path: Path) -> None:
    assert run(tmp_path / "missing.csv").exit_code == 2
    assert run(tmp_path).exit_code == 2
    assert run(f"sqlite:///{tmp_path}/missing.db").exit_code == 2


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_log_above_the_limit_is_refused(format_name: str, tmp_path: Path) -> None:
    FORMATS[format_name](tmp_path / "log")
    result = run(tmp_path / "log", "--limit", "0.00001")
    assert result.exit_code == 3
    assert "raise the limit (--limit MB)" in result.stderr
    assert run(tmp_path / "log", "--limit", "1").exit_code == 1


def test_a_crash_has_an_exit_status_of_its_own(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(LogInput, "read", fail)
    monkeypatch.setattr("sys.argv", ["coterie", "audit", str(log)])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 70
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--weak"],
        ["--require", "2", "--weak", "--collusion", "1"],
        ["--require", "0"],
        ["--collusion", "-1"],
        ["--format", "xml"],
    ],
)
def test_wrong_usage(arguments: list[str]) -> None:
    assert run("-", *arguments, stdin=SAFE).exit_code == 2


def test_the_page_is_written(log: Path, tmp_path: Path) -> None:
    result = run(log, "--html", tmp_path / "page.html", "--json")
    assert result.exit_code == 1
    json.loads(result.stdout)
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "Privacy audit of <bdi>log.csv</bdi>" in page
    assert len(page) < 8_000_000


def test_a_page_of_a_database_does_not_show_its_password(log: Path, tmp_path: Path) -> None:
    def name(source: str) -> str:
        return LogInput(source, LogSettings(), 1).name

    assert name("postgresql://ann:secret@host/db") == "postgresql://ann:***@host/db"
    assert name("-") == "standard input"


def test_a_page_that_cannot_be_written_does_not_cost_the_verdict(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path is checked before the log is read. Writing may still fail, as on a disk that is full by then."""

    def fail(path: Path, content: bytes) -> None:
        raise ConfigError(f"cannot write {path}: no space left on device")

    monkeypatch.setattr("coterie.files.write_output", fail)
    result = run(log, "--html", tmp_path / "page.html")
    assert result.exit_code == 2
    assert "1 of 5 clients" in result.stdout
    assert "cannot write" in result.stderr


def test_a_page_without_its_packages_is_refused_with_advice(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    result = run(log, "--html", "page.html")
    assert result.exit_code == 2
    assert "[report]'" in "".join(result.stderr.split())


def test_the_number_of_witnesses_can_be_chosen(tmp_path: Path) -> None:
    np.save(tmp_path / "log.npy", np.eye(14, dtype=np.uint8))
    log = tmp_path / "log.npy"
    assert sum(entry["witness"] is not None for entry in findings(log)["exposed"]) == 14
    assert sum(entry["witness"] is not None for entry in findings(log, "--witnesses", "3")["exposed"]) == 3
    assert "... and 4 more; --exposed FILE writes all of them" in run(log).stdout
    assert run(log).stdout.count("'s update") == 10
    assert run(log, "--witnesses", "12").stdout.count("'s update") == 12
    few = run(log, "--witnesses", "2").stdout
    assert (few.count("'s update"), few.count("not computed")) == (2, 9)  # eight rows, and the remark below them
    assert "--witnesses N asks for it" in few


def test_names_cannot_steer_the_terminal() -> None:
    names = ("\x1b[2J", "[red]x[/red]", ":smile:", "\u202eevil")
    text = "\n".join(json.dumps({"round": number, "clients": [name]}) for number, name in enumerate(names))
    shown = run("-", stdin=text).stdout
    assert "\x1b[2J" not in shown
    assert "\u202e" not in shown
    assert "\\x1b[2J" in shown
    assert "[red]x[/red]" in shown
    assert ":smile:" in shown


def test_progress_is_shown_only_on_a_terminal(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = run(log, "--json")
    json.loads(result.stdout)
    assert "Weak T" in result.stderr


@pytest.mark.parametrize("location", ["postgresql://u:secret@host:port/x", "postgresql://u:secret@[::1/x"])
def test_a_url_whose_port_is_no_number_is_refused_in_words(location: str) -> None:
    result = run(location)
    assert result.exit_code == 2, result.exception
    assert "this database cannot be used for a ledger" in result.output
    assert "secret" not in result.output


def test_a_limit_that_is_no_number_is_refused_in_words(log: Path) -> None:
    assert "limit must be a number of at least 0, not nan" in refusal_of("audit", log, "--limit", "nan")


def test_a_standard_input_that_is_closed_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some services start programs without one; Python then has none at all."""
    from coterie.auditing.logs import read_log
    from coterie.errors import InputError

    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InputError, match="standard input is closed"):
        read_log("-")
