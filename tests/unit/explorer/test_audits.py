"""Audits on the page: the findings of the library, for any bytes that a user drops."""

import gzip
import hashlib
import io
import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.logs import npy
from tests.support.rationals import matrices

from coterie.auditing.auditor import audit
from coterie.auditing.logs import read_log
from coterie.auditing.verdict import judge
from coterie.errors import CoterieError, InputError, LogTooLarge
from coterie.explorer import audits
from coterie.explorer.audits import AuditSettings, audit_content

LOG = b"round,client\n1,ada\n1,ben\n2,ada\n2,ben\n2,cleo\n3,ada\n3,ben\n"


def as_csv(matrix: list[list[int]]) -> bytes:
    rows = [f"{number},p{person}\n" for number, row in enumerate(matrix) for person, one in enumerate(row) if one]
    return ("round,client\n" + "".join(rows)).encode()


@settings(max_examples=30)
@given(matrices(8, 8).filter(lambda matrix: sum(map(sum, matrix)) > 0))
def test_the_verdict_is_that_of_the_library(matrix: list[list[int]]) -> None:
    content = as_csv(matrix)
    found = audit_content(AuditSettings("mine.csv"), content)
    report = audit(read_log(io.BytesIO(content)))
    verdict = judge(report)
    assert (found["verdict"]["level"], found["verdict"]["headline"]) == (verdict.level, verdict.headline)
    assert [(row["client"], row["round"]) for row in found["exposed"]] == [
        (one.client, str(one.round)) for one in report.exposed
    ]
    assert found["exposed_count"] == len(report.exposed)
    assert all(row["witness"].endswith("'s update") for row in found["exposed"])
    assert found["series"]["strong"] == list(report.series.strong_privacy)
    json.dumps(found, allow_nan=False)


def test_the_certificate_names_the_file_its_digest_and_the_options() -> None:
    found = audit_content(AuditSettings("<b>mine</b>.csv", keep_order=True, where="client=ada, client=ben"), LOG)
    evidence = dict(found["evidence"])
    assert evidence["Source"] == "<b>mine</b>.csv"
    assert evidence["SHA-256"].startswith(hashlib.sha256(LOG).hexdigest())
    assert evidence["Options"] == "--where client=ada --where client=ben --keep-order"


def test_options_choose_columns_and_rows() -> None:
    log = b"fl,who,event\n1,a,done\n1,b,done\n1,c,gone\n2,a,done\n"
    with pytest.raises(InputError):
        audit_content(AuditSettings(), log)
    chosen = AuditSettings(round_column="fl", client_column="who", where="event=done")
    assert [row["client"] for row in audit_content(chosen, log)["exposed"]] == ["a", "b"]
    lists = b"1,a,b\n2,a\n"
    assert audit_content(AuditSettings(format="lists"), lists)["exposed_count"] == 2
    assert audit_content(AuditSettings(encoding="utf-16-le"), LOG.decode().encode("utf-16-le"))["exposed_count"] == 1
    with pytest.raises(InputError, match="column=value"):
        audit_content(AuditSettings(where="done"), LOG)


def test_collusion_is_reported() -> None:
    assert "alone" in audit_content(AuditSettings(collusion=1), LOG)["collusion"]


@settings(max_examples=50)
@given(st.binary(max_size=400))
def test_any_bytes_are_audited_or_refused_with_a_reason(content: bytes) -> None:
    with suppress(CoterieError):
        json.dumps(audit_content(AuditSettings(), content), allow_nan=False)


def test_small_files_that_unpack_to_large_ones_and_large_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "_MOST_UNPACKED", 100_000)
    with pytest.raises(LogTooLarge):
        audit_content(AuditSettings(), gzip.compress(b"round,client\n" + b"1,a\n" * 100_000))
    monkeypatch.setattr(audits, "MOST_BYTES", 10)
    with pytest.raises(LogTooLarge, match="coterie audit has no such limit"):
        audit_content(AuditSettings(), LOG)


def test_a_ledger_is_sent_to_the_command_line() -> None:
    with pytest.raises(InputError, match="coterie audit LEDGER"):
        audit_content(AuditSettings(), b"SQLite format 3\0" + bytes(100))


def test_an_audit_that_takes_too_long_returns_its_findings_so_far() -> None:
    found = audit_content(AuditSettings(), LOG, seconds=-1)
    assert "interrupted" in found["verdict"]["headline"]


def test_many_rounds_are_thinned_and_many_clients_counted() -> None:
    found = audit_content(AuditSettings("eye.npy"), npy(np.eye(450, dtype=np.uint8)))
    assert found["exposed_count"] == 450
    assert len(found["exposed"]) == 200
    assert [row["witness"] is not None for row in found["exposed"]].count(True) == 1
    assert len(found["series"]["rounds"]) <= 400
    assert (found["series"]["exposed"][0], found["series"]["exposed"][-1]) == (1, 450)


def test_lines_that_cannot_be_read_are_shown() -> None:
    found = audit_content(AuditSettings(), LOG + b"4\n")
    assert found["unreadable"]["count"] == 1
    assert found["unreadable"]["lines"][0]["line"] == 9


def wide_records() -> list[dict[str, object]]:
    """Return a few records with many fields, in each record others."""
    return [
        {"round": number, "clients": ["a", "b"], **{f"q{number}-{field}": 0 for field in range(2000)}}
        for number in range(20)
    ]


@pytest.mark.parametrize(
    "content",
    [
        b"round,client\n" + b"1,a\n" * 100_000,
        b"\n".join(json.dumps(record).encode() for record in wide_records()),
        json.dumps(wide_records()).encode(),
        json.dumps({f"first {number}": ["a", "b"] for number in range(20)}).encode(),
    ],
    ids=["many lines", "long lines", "a document", "lists"],
)
def test_a_log_that_is_too_long_to_read_in_time_is_refused(content: bytes) -> None:
    with pytest.raises(LogTooLarge, match="reading this log takes more than"):
        audit_content(AuditSettings(), gzip.compress(content), seconds=-1)


def test_a_record_with_too_many_fields_is_refused() -> None:
    record = {"round": 1, "clients": ["a", "b"], **{f"q{field}": 0 for field in range(100_000)}}
    with pytest.raises(LogTooLarge, match="more than 100,000 different fields"):
        audit_content(AuditSettings(), json.dumps(record).encode())
