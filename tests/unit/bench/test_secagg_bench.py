"""The costs of a session: what is measured and shown, published parameters, and that no wrong result is measured."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.commands import refusal_of
from tests.support.records import words_of
from typer.testing import CliRunner

from coterie.arithmetic.ring import Ring
from coterie.bench.machine import keystream_ratio
from coterie.bench.rivals import flower_secagg as flower_bench
from coterie.bench.secagg import SessionCosts, check_flower, client_signatures, measure, run_session
from coterie.bench.workload import Workload, choose
from coterie.cli import app
from coterie.cli import bench as bench_cli
from coterie.crypto import signing
from coterie.errors import ConfigError, RoundAborted, ThresholdError
from coterie.graphs.topology import Complete, ErdosRenyi, Harary
from coterie.host import install_command, peak_rss_bytes
from coterie.secagg.server import Aggregate
from coterie.transports.memory import Session

STEPS = {"advertise", "share", "mask", "reveal"}
TINY = ["bench", "secagg", "--clients", "9", "--length", "200", "--workers", "1"]


def run_json(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stderr == ""
    record: dict[str, Any] = json.loads(result.stdout)
    return record


@pytest.mark.parametrize(
    ("topology", "degree"),
    [(["complete"], 8), (["harary", "--degree", "4"], 4), (["erdos-renyi", "--probability", "1"], 8)],
)
def test_the_json_says_what_was_run_and_what_it_cost(topology: list[str], degree: int) -> None:
    record = run_json(*TINY, "--dropout", "0.2", "--threshold", "3", "--seed", "5", "--topology", *topology)
    # 9 vectors of 2^21 - 1 levels either way: sums take 26 bits.
    assert record["parameters"] == {
        "clients": 9,
        "length": 200,
        "dropout": 0.2,
        "vanished": 2,
        "topology": topology[0],
        "connection_probability": 1.0 if topology[0] == "erdos-renyi" else None,
        "degree": degree,
        "threshold": 3,
        "precision": 22,
        "bits": 26,
        "workers": 1,
        "seed": 5,
        "active_server": False,
    }
    assert set(record["client_ms"]) == STEPS
    assert min(record["client_ms"].values()) > 0
    # Seven of nine clients take every step, and at least half of them as long as the median.
    assert record["session_ms"] > record["server_ms"] + 3 * sum(record["client_ms"].values())
    assert 201 * 26 / 8 < record["masked_vector_bytes"] < record["upload_bytes"]
    assert record["masked_vector_ratio"] == record["masked_vector_bytes"] / (200 * 26 / 8)
    assert record["wall_ms"] > record["server_ms"] > 0
    assert record["graph_ms"] > 0
    assert record["keystream_ratio"] > 0
    assert record["server_limit_ms"] > 0
    assert record["server_ratio"] > 0
    assert record["peak_rss_bytes"] > 10**7
    assert not {"flower", "speedup"} & set(record)


def test_the_command_prints_a_table() -> None:
    shown = words_of(*TINY)
    for words in ("9 clients with 200 numbers each", "client, share", "peak memory", "The sum is exact"):
        assert words in shown
    assert "Flower" not in shown


def test_flower_is_shown_beside_our_costs_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    workload = Workload(9, 200, 0.1, Harary(4), 3)
    measured = measure(workload, workers=1)
    ours = measured.costs
    theirs = replace(
        ours,
        client_ms={step: 12 * spent for step, spent in ours.client_ms.items()},
        server_ms=345 * ours.server_ms,
        upload_bytes=2 * ours.upload_bytes,
    )
    assert ours.speedup_over(theirs) == pytest.approx({"share": 12, "mask": 12, "server": 345})
    record = bench_cli._secagg_record(workload, measured, theirs)
    assert record["flower"]["server_ms"] == theirs.server_ms
    assert set(record["flower"]) == set(SessionCosts.__dataclass_fields__) < set(record)
    assert record["speedup"] == ours.speedup_over(theirs)
    bench_cli._show_secagg(workload, measured, theirs)
    shown = capsys.readouterr().out
    for words in ("345.0x faster", "12.0x faster", "2.0x smaller", "not cryptographic", "MT19937"):
        assert words in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--clients", "2"], "at least 3 clients"),
        (["--length", "0"], "at least 1 number"),
        (["--dropout", "1"], "below 1"),
        (["--dropout", "nan"], "must be a number"),
        (["--degree", "3"], "even"),
        (["--degree", "10"], "at most 8 neighbours"),
        (["--topology", "complete", "--degree", "4"], "not for complete"),
        (["--probability", "0.5"], "not for harary"),
        (["--topology", "erdos-renyi"], "complete graph"),
        (["--topology", "star"], "one of complete, erdos-renyi, harary, not 'star'"),
        (["--topology", "erdos-renyi", "--probability", "1.5"], "(0, 1]"),
        (["--threshold", "0"], "between 1 and the 9 shares"),
        (["--threshold", "6", "--degree", "4"], "between 1 and the 5 shares"),
        (["--precision", "60"], "precision"),
        (["--workers", "0"], "at least 1 worker"),
        (["--seed", "-1"], "at least 0"),
        (["--against", "flower", "--topology", "erdos-renyi", "--probability", "0.9"], "complete and harary graphs"),
        (["--against", "flower", "--threshold", "1"], "threshold must be"),
    ],
)
def test_bad_parameters_end_in_one_clear_line(arguments: Sequence[str], message: str) -> None:
    said = refusal_of(*TINY, *arguments, silent=True)
    assert said.startswith("coterie: ")
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--against", "nobody"], ["--clients", "many"]])
def test_unknown_words_are_refused(arguments: Sequence[str]) -> None:
    assert CliRunner().invoke(app, [*TINY, *arguments]).exit_code == 2


def test_a_wrong_version_of_flower_is_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_bench, "version", lambda package: "1.0.0")
    with pytest.raises(ConfigError, match=re.escape(install_command("flower"))):
        check_flower(Workload(9, 200, 0.1, Complete(), 5))


@pytest.mark.parametrize(
    ("kind", "clients", "dropout", "chosen"),
    [
        ("complete", 100, 0.1, (Complete(), 51)),
        ("harary", 100, 0.1, (Harary(30), 17)),
        ("harary", 10, 0.1, (Harary(8), 5)),
        ("harary", 3, 0.0, (Harary(2), 2)),
    ],
)
def test_published_parameters_are_the_defaults(
    kind: str, clients: int, dropout: float, chosen: tuple[Complete | Harary, int]
) -> None:
    assert choose(kind, clients, dropout) == chosen
    assert choose(kind, clients, dropout, threshold=7) == (chosen[0], 7)


def test_random_graphs_use_the_rule_of_ccesa() -> None:
    topology, threshold = choose("erdos-renyi", 500, 0.1)
    assert isinstance(topology, ErdosRenyi)
    assert topology.probability == pytest.approx(0.41592, abs=1e-5)
    assert threshold == 133
    assert choose("erdos-renyi", 40, 0.1, probability=0.7) == (ErdosRenyi(0.7), 21)
    with pytest.raises(ConfigError, match="'star'"):
        choose("star", 100, 0.1)


@given(st.integers(1, 500))
def test_the_default_threshold_of_a_harary_graph_is_a_strict_majority(half: int) -> None:
    _, threshold = choose("harary", 2 * half + 1, 0.0, degree=2 * half)
    assert half + 1 <= threshold <= 2 * half + 1


@given(st.integers(3, 200), st.floats(0, 0.99), st.integers(0, 2**40))
def test_the_right_number_of_clients_vanishes_and_the_seed_decides_which(
    clients: int, dropout: float, seed: int
) -> None:
    workload = Workload(clients, 1, dropout, Complete(), 2, seed=seed)
    assert len(set(workload.vanishing)) == len(workload.vanishing) == round(dropout * clients)
    assert workload.vanishing == Workload(clients, 1, dropout, Complete(), 2, seed=seed).vanishing


def test_a_wrong_result_is_an_error_and_not_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Session.run
    workload = Workload(5, 50, 0.0, Complete(), 3)

    def off_by_one(session: Session) -> Aggregate:
        aggregate = honest(session)
        aggregate.total[7] ^= 1
        return aggregate

    def one_missing(session: Session) -> Aggregate:
        aggregate = honest(session)
        return Aggregate(aggregate.total, aggregate.clients[1:])

    monkeypatch.setattr(Session, "run", off_by_one)
    with pytest.raises(RoundAborted, match="not that of the survivors"):
        measure(workload, workers=1)
    monkeypatch.setattr(Session, "run", one_missing)
    with pytest.raises(RoundAborted, match="4 clients were aggregated; 5 should"):
        measure(workload, workers=1)
    monkeypatch.setattr(Session, "run", honest)
    monkeypatch.setattr("coterie.bench.workload.CLIP", 0.5)
    monkeypatch.setattr(Workload, "vector", lambda self, client: (np.full(50, 0.9), 1, np.random.default_rng(1)))
    with pytest.raises(
        RoundAborted, match=r"the mean is off by 0\.4"
    ):  # clipped, so the mean is not that of the inputs
        measure(workload, workers=1)


def test_too_many_dropouts_end_the_session() -> None:
    with pytest.raises(ThresholdError):
        measure(Workload(9, 50, 0.6, Complete(), 5), workers=2)


@pytest.mark.parametrize(("bits", "length", "degree"), [(16, 1, 1), (29, 40_000, 4), (40, 70_000, 3)])
def test_masking_is_measured_against_the_keystream(bits: int, length: int, degree: int) -> None:
    assert 0 < keystream_ratio(Ring(bits), length, degree) < np.inf


def test_peak_memory_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    before = peak_rss_bytes()
    block = np.ones(before, np.uint8)
    after = peak_rss_bytes()
    assert after >= before + 0.5 * block.nbytes
    monkeypatch.setattr(Path, "read_text", lambda self: "Name: none of the fields it should have")
    assert peak_rss_bytes() >= 0.9 * after  # the portable figure: never less, apart from when it is updated


def test_an_active_server_costs_one_step_more() -> None:
    workload = Workload(12, 50, 0.1, Complete(), 7, active=True)
    assert (workload.terms.tolerated, workload.terms.quorum) == (3, 8)
    active, curious = measure(workload, workers=1), measure(replace(workload, active=False), workers=1)
    assert active.costs.client_ms.keys() - curious.costs.client_ms.keys() == {"confirm"}
    assert active.costs.upload_bytes > curious.costs.upload_bytes
    assert active.download_bytes > curious.download_bytes > 0
    assert curious.signatures == {}
    assert active.signatures_ms > curious.signatures_ms == 0


def test_the_printed_signatures_are_those_that_clients_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = Workload(12, 50, 0.25, Complete(), 7, active=True)
    verified, verify = Counter[bytes](), signing.verify

    def counted(public: bytes, signature: bytes, context: bytes) -> None:
        verified[b"advertise" if b"advertise" in context else b"masks" if b"masks" in context else b"survivors"] += 1
        verify(public, signature, context)

    monkeypatch.setattr(signing, "verify", counted)
    run_session(workload, workers=1)
    # All 12 clients check keys, the 9 that are left check the rest; the server verifies each signature once.
    expected = client_signatures(workload, 11)
    assert expected == {"share": 11, "confirm": 8, "reveal": 7}
    assert verified == {b"advertise": 12 * 11 + 12, b"masks": 9 * 8 + 9, b"survivors": 9 * 7 + 9}


def test_the_signatures_of_a_client_are_printed() -> None:
    shown = words_of(*TINY, "--active", "--dropout", "0")
    assert "A client verifies 8 (share) + 8 (confirm) + 5 (reveal) signatures" in shown
