"""What sparse graphs save: counts are those of real sessions, sessions take turns, and claims can fail."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.jobs import CONTEXT, experiment_of
from tests.support.reports import checked_report

from coterie.crypto import shamir
from coterie.errors import ConfigError, RoundAborted
from coterie.graphs.guarantees import majority_threshold, paper_parameters
from coterie.graphs.topology import Complete, ErdosRenyi, Harary, Topology
from coterie.reports.findings import Claim, Judgement
from coterie.reproduce.declarations import FULL, QUICK, Declaration, declared, read_declaration
from coterie.reproduce.experiment import Job
from coterie.reproduce.graph_costs import sessions
from coterie.reproduce.graph_costs.experiment import GraphCosts
from coterie.reproduce.graph_costs.operations import Operations, count_operations
from coterie.reproduce.graph_costs.orders import QUANTITIES, Course
from coterie.reproduce.graph_costs.report import report
from coterie.reproduce.graph_costs.sessions import play_in_turns, play_session
from coterie.reproduce.graph_costs.settings import BELL, CCESA, SA, STEPS, OperationCount, Outcomes
from coterie.reproduce.reliability import present
from coterie.reproduce.runner import Run
from coterie.secagg import masking
from coterie.secagg.server import Aggregate, Server, Step
from coterie.secagg.terms import Terms
from coterie.transports.faults import Faults, dropouts
from coterie.transports.memory import AnswerCount, Carrier, OnAnswer, Session

NOBODY = Faults()
GRAPHS: tuple[Topology, ...] = (Complete(), ErdosRenyi(0.7), Harary(6))


def shipped(size: str = FULL) -> GraphCosts:
    return experiment_of(GraphCosts, "ccesa-costs", size)


def terms_of(topology: Topology, clients: int, threshold: int, seed: int = 0, length: int = 50) -> Terms:
    return Terms(
        session=seed.to_bytes(16, "big"),
        clients=tuple(map(str, range(clients))),
        bits=16,
        length=length,
        topology=topology,
        threshold=threshold,
    )


class Work:
    """The operations that a session does, counted where they are done."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.client_products = self.client_stream = self.server_products = self.server_stream = 0
        split, combine = shamir.split, shamir.combine_many
        mask, unmask = masking.mask_vector, masking.unmask_circles

        def count_split(secrets: Any, threshold: int, points: Sequence[int], *more: Any) -> Any:  # noqa: ANN401
            self.client_products += threshold * len(points)
            return split(secrets, threshold, points, *more)

        def count_combine(points: Sequence[Sequence[int]], shares: Any) -> Any:  # noqa: ANN401
            self.server_products += sum(len(some) ** 2 for some in points)
            return combine(points, shares)

        def count_mask(vector: Any, added: Any, subtracted: Any, parallel: Any = None) -> None:  # noqa: ANN401
            self.client_stream += len(vector) * (len(added) + len(subtracted))
            mask(vector, added, subtracted, parallel)

        def count_unmask(terms: Terms, sums: Any, who: Any, added: Any, subtracted: Any, parallel: Any) -> Any:  # noqa: ANN401
            self.server_stream += terms.length * (len(added) + len(subtracted))
            return unmask(terms, sums, who, added, subtracted, parallel)

        patched.setattr(shamir, "split", count_split)
        patched.setattr(shamir, "combine_many", count_combine)
        patched.setattr("coterie.secagg.client.mask_vector", count_mask)
        patched.setattr("coterie.secagg.unmasking.unmask_circles", count_unmask)


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(GRAPHS), st.integers(8, 20), st.integers(0, 2**20))
def test_operations_are_those_of_a_session(topology: Topology, clients: int, seed: int) -> None:
    terms, everybody = terms_of(topology, clients, 3, seed), range(clients)
    with pytest.MonkeyPatch.context() as patched:
        work = Work(patched)
        try:
            session = play_session(terms, Carrier(NOBODY, 1), seed)
        except RoundAborted:
            assume(False)  # the graph is not connected
    assume(not session.refusals)
    counted = count_operations(terms, everybody, everybody)
    assert counted.client_products * clients == pytest.approx(work.client_products)
    assert counted.client_stream * clients == pytest.approx(work.client_stream)
    assert counted.server_products == work.server_products
    assert counted.server_stream == work.server_stream == clients * terms.length
    sent = sum(sum(step.upload_bytes) + sum(step.download_bytes) for step in session.steps.values())
    vectors = clients * terms.ring.packed_size(terms.length)
    assert counted.server_bytes == pytest.approx(sent - vectors, rel=0.01)  # numbers of clients differ in their bytes


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(GRAPHS), st.integers(0, 2**20))
def test_the_servers_operations_are_those_of_a_session_with_dropouts(topology: Topology, seed: int) -> None:
    terms, faults = terms_of(topology, 20, 3, seed), dropouts(0.08, seed)
    carrier = Carrier(faults, 1)
    servers: list[Server] = []
    with pytest.MonkeyPatch.context() as patched:
        work = Work(patched)
        start = Server.__init__

        def keep(self: Server, *arguments: Any) -> None:  # noqa: ANN401
            start(self, *arguments)
            servers.append(self)

        patched.setattr(Server, "__init__", keep)
        try:
            play_session(terms, carrier, seed)
        except RoundAborted:
            assume(False)
    assume(not carrier.report.refusals)
    sharers, survivors, _ = present(terms, faults)
    (server,) = servers
    assert {terms.index[name] for name in server.sharers} == sharers
    assert {terms.index[name] for name in server.survivors} == survivors
    counted = count_operations(terms, sharers, survivors)
    assert counted.server_products == work.server_products
    assert counted.server_stream == work.server_stream


@given(st.integers(100, 100_000))
def test_the_neighbours_of_the_rule_grow_as_table_1_says(clients: int) -> None:
    """In proportion to sqrt(n log n), but for a constant; so does the threshold."""
    rules = [paper_parameters(size, 0.1) for size in (clients, 2 * clients)]
    near = next(quantity for quantity in QUANTITIES if quantity.field == "client_stream").orders[CCESA]
    grown = rules[1].connection_probability * (2 * clients - 1) / (rules[0].connection_probability * (clients - 1))
    assert grown == pytest.approx(near.factor(clients, 2 * clients), rel=0.02)
    assert rules[1].threshold / rules[0].threshold == pytest.approx(grown, rel=0.05)


def test_every_quantity_has_an_order_for_every_scheme() -> None:
    assert [quantity.field for quantity in QUANTITIES if set(quantity.orders) != {SA, CCESA, BELL}] == []
    assert sorted(quantity.field for quantity in QUANTITIES) == sorted(Operations.__struct_fields__)


def test_the_printed_times_are_near_p() -> None:
    """The margin of the claims comes from this."""
    experiment = shipped()
    for row in experiment.times:
        if row.scheme == CCESA:
            ratio = experiment.printed_ratio(row.clients, row.dropout, 1, 2)
            assert ratio == pytest.approx(row.probability, rel=0.06)
            thresholds = [experiment.printed(scheme, row.clients, row.dropout) for scheme in (SA, CCESA)]
            expected = [majority_threshold(row.clients), paper_parameters(row.clients, row.dropout).threshold]
            assert [one.threshold for one in thresholds if one] == expected
    assert len(experiment.times) == 12
    assert experiment.printed_ratio(1000, 0.0, 1) is None


def outcomes_growing(exponent: float, trials: int = 4) -> Outcomes:
    """Return counts of CCESA that grow as a power of n, with some noise."""
    rng = np.random.default_rng(0)
    counted = [
        OperationCount(
            scheme=CCESA,
            clients=clients,
            trial=trial,
            operations=Operations(
                **{name: clients**exponent * rng.normal(1, 0.001) for name in Operations.__struct_fields__}
            ),
        )
        for clients in (500, 1000)
        for trial in range(trials)
    ]
    return Outcomes(played=[], counted=counted)


@pytest.mark.parametrize(
    ("exponent", "expected"),
    [
        # O(sqrt(n log n)) is about n^0.58 here, and O(n^2 log n) about n^2.16.
        (0.5, [Judgement.HOLDS] * 5),
        (1.0, [Judgement.FAILS, Judgement.HOLDS, Judgement.FAILS, Judgement.HOLDS, Judgement.HOLDS]),
        (3.0, [Judgement.FAILS] * 5),
    ],
)
def test_claims_about_growth_hold_and_fail_by_the_counted_growth(exponent: float, expected: list[Judgement]) -> None:
    found = report(shipped(), outcomes_growing(exponent))
    growth = [claim for claim in found.claims if claim.says.startswith("Table 1")]
    assert [claim.judgement for claim in growth] == expected
    assert not any(claim.ours for claim in growth)


def test_table_f4_and_the_parameters_of_table_5_1_are_judged_without_any_run() -> None:
    experiment = shipped()
    claims = report(experiment, Outcomes(played=[], counted=[])).claims
    assert [(claim.judgement, claim.doubt) for claim in claims] == [(Judgement.FAILS, None), (Judgement.HOLDS, None)]
    assert claims[0].statistic == "35 are, 2 are off by more than 0.001, 3 in the last digit"
    rows = report(experiment, Outcomes(played=[], counted=[])).tables[0].rows
    assert sum(cell.endswith("**wrong**") for row in rows for cell in row) == 2
    assert sum(cell.endswith("*digit*") for row in rows for cell in row) == 3
    (first, *others) = experiment.times
    wrong = msgspec.structs.replace(experiment, times=(msgspec.structs.replace(first, threshold=52), *others))
    assert report(wrong, Outcomes(played=[], counted=[])).claims[1].judgement == Judgement.FAILS


def test_growth_is_computed_only_between_counted_sizes() -> None:
    course = Course.of(CCESA, outcomes_growing(1.0).counted)
    assert course.doubling == (500, 1000)
    assert course.factors(QUANTITIES[0], 500, 1000) == pytest.approx([2] * 4, rel=0.01)
    assert Course.of(CCESA, [one for one in outcomes_growing(1.0).counted if one.clients == 500]).doubling is None


def test_a_trial_is_counted_again_from_its_seed() -> None:
    experiment = shipped(QUICK)
    job = Job("growth", "CCESA, 100 clients", 0)
    assert experiment.measure(job, 1, CONTEXT) == experiment.measure(job, 1, CONTEXT)
    assert experiment.measure(job, 1, CONTEXT) != experiment.measure(job._replace(trial=1), 1, CONTEXT)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sessions": {"clients": [10], "dropouts": [0.0]}}, "complete graph"),
        ({"growth": {"clients": [40], "dropout": 0.1, "graphs": 1}}, "complete graph"),
        ({"rule": {"clients": [100], "dropouts": [0.0]}}, "10 are printed for dropout 0"),
    ],
)
def test_impossible_sizes_are_refused(changes: dict[str, Any], message: str) -> None:
    declaration = read_declaration(declared()["ccesa-costs"])
    wrong = msgspec.structs.replace(declaration, settings={**declaration.settings, **changes})
    with pytest.raises(ConfigError, match=message):
        wrong.experiment(FULL)


# Sessions in turns.


def both() -> tuple[Terms, Terms]:
    return terms_of(Complete(), 30, 16), terms_of(ErdosRenyi(0.9), 30, 16)


def observed(monkeypatch: pytest.MonkeyPatch, watch: OnAnswer) -> None:
    class Watched(AnswerCount):
        def __init__(self, tell: OnAnswer) -> None:
            def both(step: Step, count: int, total: int) -> None:
                watch(step, count, total)
                tell(step, count, total)

            super().__init__(both)

    monkeypatch.setattr(sessions, "AnswerCount", Watched)


def test_sessions_advance_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Step, int]] = []
    observed(monkeypatch, lambda step, count, total: seen.append((step, count)))
    reports = play_in_turns(*both(), NOBODY, 0)
    for one in reports:
        assert [len(one.steps[step].client_seconds) for step in STEPS] == [30] * 4
    assert seen == [(step, count) for step in STEPS for count in range(1, 31) for _ in reports]


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failing_session_ends_the_other(failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Step] = []

    def watch(step: Step, count: int, total: int) -> None:
        seen.append(step)
        if step is Step.MASK and seen.count(Step.MASK) == failing + 1:
            raise RoundAborted("this one failed")

    observed(monkeypatch, watch)
    with pytest.raises(RoundAborted, match="this one failed"):
        play_in_turns(*both(), NOBODY, 0)
    assert Step.REVEAL not in seen


def test_a_session_with_a_wrong_sum_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Session.run

    def off_by_one(session: Session) -> Aggregate:
        aggregate = honest(session)
        aggregate.total[7] ^= 1
        return aggregate

    monkeypatch.setattr(Session, "run", off_by_one)
    with pytest.raises(RoundAborted, match="not that of the survivors"):
        play_in_turns(*both(), NOBODY, 0)


@pytest.mark.parametrize("bits", [1, 16, 33, 64])
def test_any_ring_can_be_summed(bits: int) -> None:
    terms = msgspec.structs.replace(terms_of(Complete(), 5, 3), bits=bits)
    assert play_session(terms, Carrier(dropouts(0.05, 1), 1), 1).server_processor_seconds > 0


# From end to end.


def small() -> Declaration:
    declaration = read_declaration(declared()["ccesa-costs"])
    changes = {
        "length": 200,
        "sessions": {"clients": [30, 40], "dropouts": [0.0]},
        "growth": {"clients": [30, 60], "dropout": 0.0, "graphs": 2},
    }
    return msgspec.structs.replace(declaration, settings={**declaration.settings, **changes})


def test_a_report_has_all_tables_and_can_be_rewritten(tmp_path: Path) -> None:
    run = Run("ccesa-costs", small(), tmp_path, trials=3)
    found, text = checked_report(run)
    for words in ("Table 5.1: milliseconds", "CCESA's share of SA's time", "Table 1: operations", "0.280 **wrong**"):
        assert words in text
    for file in ("rule.png", "ratios.png", "growth.png"):
        assert (tmp_path / file).stat().st_size > 10_000
    assert [len(row) for row in found.tables[1].rows] == [10] * 4
    ours = [claim for claim in found.claims if claim.ours]
    assert [claim.says.split(":")[0] for claim in ours] == [f"Table 5.1, n = {n}, q_total = 0" for n in (30, 40)]
    assert abstract(found.claims).judgement is Judgement.OPEN  # 30 or 40 clients in place of 500


def abstract(claims: Sequence[Claim]) -> Claim:
    return next(claim for claim in claims if claim.says.startswith("Abstract"))


def test_dropouts_are_those_of_both_sessions() -> None:
    experiment = msgspec.structs.replace(shipped(QUICK), length=20)
    record = experiment.measure(Job("sessions", "100 clients, 0.1 drop out", 0), 3, CONTEXT)
    assert set(record) == {SA, CCESA}
    assert record[CCESA]["client_bytes"] < record[SA]["client_bytes"]
    assert min(*record[SA]["client_ms"], record[SA]["server_ms"]) > 0
