"""Rounds on sparse graphs by two rules: Theorem 1 as counted against sessions as played."""

from pathlib import Path

import msgspec
import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.jobs import CONTEXT, experiment_of
from tests.support.reports import checked_report

from coterie.graphs.topology import ErdosRenyi, build
from coterie.reports.findings import Judgement
from coterie.reproduce.declarations import declared, read_declaration
from coterie.reproduce.experiment import Job
from coterie.reproduce.reliability import GraphSetting, Reliability, reliable
from coterie.reproduce.runner import Run

SPARSE = GraphSetting(name="sparse", clients=12, connection=0.6, threshold=6, dropout=0.2, played=True)


def shipped() -> Reliability:
    return experiment_of(Reliability, "ccesa-reliability")


@given(st.data())
def test_theorem_one_as_the_paper_words_it(data: st.DataObject) -> None:
    """Every node of V3+ is informative; with networkx's adjacency and sets written out."""
    size = data.draw(st.integers(2, 12))
    graph = build(ErdosRenyi(data.draw(st.floats(0.1, 1.0))), size, data.draw(st.binary(min_size=4, max_size=4)))
    sharers = data.draw(st.sets(st.integers(0, size - 1)))
    survivors = {node for node in sharers if data.draw(st.booleans())}
    revealers = {node for node in survivors if data.draw(st.booleans())}
    threshold = data.draw(st.integers(1, size))
    adjacency = nx.Graph([(node, peer) for node in range(size) for peer in graph.neighbours(node)])
    adjacency.add_nodes_from(range(size))
    extended = survivors | {node for node in sharers if set(adjacency[node]) & survivors}
    informative = {node for node in range(size) if len((set(adjacency[node]) | {node}) & revealers) >= threshold}
    assert reliable(graph, threshold, sharers, survivors, revealers) == (extended <= informative)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.2]))
def test_a_reliable_round_is_completed_by_our_rule_too(seed: int, dropout: float) -> None:
    setting = msgspec.structs.replace(SPARSE, dropout=dropout)
    record = Reliability(settings=(setting,)).measure(Job("graphs", setting.name, 0), seed, CONTEXT)
    assert record["aggregated"] <= setting.clients
    if record["reliable"]:
        assert record["aggregated"] >= setting.threshold


def test_our_rule_continues_without_clients_with_too_few_holders() -> None:
    """Of the first graphs of the face experiment, Theorem 1 gives some up, and most of those are completed."""
    experiment = shipped()
    (name,) = (one.name for one in experiment.settings if one.played and not one.dropout)
    records = [experiment.measure(Job("graphs", name, trial), 0, CONTEXT) for trial in range(16)]
    given_up = [record["aggregated"] for record in records if not record["reliable"]]
    assert given_up
    assert all(record["aggregated"] == 40 for record in records if record["reliable"])
    assert any(0 < clients < 40 for clients in given_up)
    assert 40 not in given_up


def test_reports_count_judge_and_can_be_rewritten(tmp_path: Path) -> None:
    declaration = msgspec.structs.replace(
        read_declaration(declared()["ccesa-reliability"]),
        settings={"settings": [msgspec.to_builtins(SPARSE)]},
        remarks={"claims": [{"says": "It is enough", "setting": "sparse"}], "notes": ["A note."]},
    )
    run = Run("sparse", declaration, tmp_path, trials=30)
    report, text = checked_report(run)
    counts = report.numbers["settings"][0]
    assert counts["graphs"] == 30
    assert counts["unreliable"] > 0
    assert len(counts["saved"]) == counts["unreliable"] - counts["aborted"] + counts["refused"]
    assert report.numbers["claims"][0]["judgement"] == Judgement.FAILS
    assert f"{counts['unreliable']} of 30" in text
    assert "## Figures" not in text


def test_every_claim_is_about_a_setting() -> None:
    experiment = shipped()
    assert {claim.setting for claim in experiment.claims} <= {setting.name for setting in experiment.settings}


def test_thresholds_follow_the_papers_rule() -> None:
    for setting in shipped().settings:
        others = setting.clients - 1
        rule = np.ceil((others * setting.connection + np.sqrt(others * np.log(others)) + 1) / 2)
        assert setting.threshold == rule or setting.connection == 0.6  # which has the threshold of p = 0.7
