"""With any topology, faults and circles, a session gives the exact sum over the right clients, or a typed error."""

import numpy as np
from hypothesis import event, given, settings
from tests.support.cast import ring_sum
from tests.support.strategies import Played, Setting, settings_of_sessions

from coterie.errors import PartialSumRisk, PeerProtocolError, RoundAborted, ThresholdError
from coterie.secagg import Server, Step, Terms
from coterie.transports.faults import FaultKind

LOSSES = (FaultKind.DROP, FaultKind.DUPLICATE, FaultKind.REORDER)
thorough = settings(max_examples=150)


def expected_aggregate(terms: Terms, survivors: tuple[str, ...]) -> set[str]:
    """The circle rule, written again from its definition: every member of an aggregated circle survived."""
    if terms.circles is None:
        return set(survivors)
    circle_of = dict(zip(terms.clients, terms.circles, strict=True))
    return {
        name
        for name in survivors
        if all(mate in survivors for mate in terms.clients if circle_of[mate] == circle_of[name])
    }


@thorough
@given(settings_of_sessions())
def test_exact_sum_over_the_right_clients_or_a_typed_error(setting: Setting) -> None:
    played, terms = setting.play(), setting.terms
    report, server = played.session.report, played.session.server
    if played.result is None:
        assert isinstance(played.error, RoundAborted | PeerProtocolError)
        event(type(played.error).__name__)
    else:
        event("aggregated")
        assert set(played.result.clients) == expected_aggregate(terms, server.survivors)
        assert len(played.result.clients) >= terms.minimum
        assert (played.result.total == ring_sum(terms, played.inputs, played.result.clients)).all()
    named = {rejected.sender for rejected in server.rejected} | {refusal.client for refusal in report.refusals}
    assert named <= set(terms.clients)


@thorough
@given(settings_of_sessions(kinds=LOSSES))
def test_if_clients_only_drop_out_theorems_one_and_two_decide(setting: Setting) -> None:
    """Reliable iff every client of V3+ is informative, private iff the survivor graph is connected."""
    played, terms = setting.play(), setting.terms
    server = played.session.server
    assert isinstance(server, Server)
    assert all("already heard" in rejected.reason for rejected in server.rejected)
    if not server.aggregated or server.step in (Step.MASK, Step.CONFIRM):
        assert isinstance(played.error, ThresholdError | PartialSumRisk)
        graph = server.view().graph
        if isinstance(played.error, PartialSumRisk):
            aggregated = {terms.index[name] for name in server.aggregated}
            lonely = terms.active and any(
                len(aggregated & set(graph.neighbours(node)))
                <= min(terms.tolerated, terms.threshold_for(graph.degree(node) + 1) - 1)
                for node in aggregated
            )
            event("lonely" if lonely else "disconnected")
            assert lonely or not graph.connected(aggregated)
        return
    graph = server.view().graph
    aggregated = {terms.index[name] for name in server.aggregated}
    holders = {terms.index[name] for name in server.revealers}
    concerned = aggregated | {
        terms.index[name] for name in server.sharers if aggregated & set(graph.neighbours(terms.index[name]))
    }
    uninformative = {
        node
        for node in concerned
        if len(holders & {node, *graph.neighbours(node)}) < terms.threshold_for(graph.degree(node) + 1)
    }
    assert graph.connected(aggregated)
    if played.error is None:
        event("aggregated")
        assert not uninformative
    else:
        event("uninformative")
        assert isinstance(played.error, ThresholdError)
        assert {terms.index[name] for name in played.error.shortfall} == uninformative != set()


@thorough
@given(settings_of_sessions(kinds=LOSSES))
def test_the_server_can_derive_the_announced_sum_and_nothing_else(setting: Setting) -> None:
    """Linear algebra over everything the server holds, with masks as independent unknowns.

    Each masked input is one equation: input + self mask + signed pairwise masks. Masks whose secret can be put together
    from the shares that were revealed are known and drop out. A combination of equations tells something about the
    inputs iff it cancels every unknown mask; those combinations must be the multiples of the announced sum.
    """
    played = setting.play()
    assert isinstance(played.session.server, Server)
    view = played.session.server.view()
    graph, survivors = view.graph, sorted(view.survivors)

    columns: dict[tuple[int, int], int] = {}
    entries: list[tuple[int, int, int]] = []
    for row, node in enumerate(survivors):
        if not view.opened(view.self_shares, node):
            entries.append((row, columns.setdefault((node, node), len(columns)), 1))
        for peer in graph.neighbours(node):
            if (
                peer in view.sharers
                and not view.opened(view.key_shares, node)
                and not view.opened(view.key_shares, peer)
            ):
                pair = (min(node, peer), max(node, peer))
                entries.append((row, columns.setdefault(pair, len(columns)), 1 if node < peer else -1))
    unknown = np.zeros((len(survivors), len(columns)))
    for row, column, sign in entries:
        unknown[row, column] = sign
    freedom = len(survivors) - (np.linalg.matrix_rank(unknown) if unknown.size else 0)
    announced = np.array([node in view.aggregated for node in survivors], dtype=float)
    if played.error is None:
        event("aggregated")
        assert freedom == 1
        assert announced.any()
        assert not (announced @ unknown).any()
    else:
        event("aborted")
        assert freedom <= 1
        if freedom == 1:  # enough was revealed, so what can be derived must be the announced sum
            assert not (announced @ unknown).any()


@settings(max_examples=25)
@given(settings_of_sessions())
def test_parking_states_changes_nothing(setting: Setting) -> None:
    parked = Setting(setting.terms, setting.faults, park=True).play()
    straight = Setting(setting.terms, setting.faults, park=False).play()
    assert _summary(parked) == _summary(straight)


@settings(max_examples=25)
@given(settings_of_sessions())
def test_faults_replay_from_their_seed(setting: Setting) -> None:
    assert _summary(setting.play()) == _summary(setting.play())


def _summary(played: Played) -> object:
    server = played.session.server
    return (
        type(played.error),
        played.result and (played.result.clients, played.result.total.tolist()),
        (server.advertisers, server.sharers, server.survivors, server.revealers),
        [(rejected.sender, rejected.step) for rejected in server.rejected],
    )
