"""What a run promises: no more than SECURITY.md does, in every mode, on every graph, with any number of colluders."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.runs import client_names, make_records, promised, summarised

from coterie.runs.records.promise import Promise
from coterie.runs.report.page import run_page
from coterie.runs.report.words import in_words
from coterie.runs.settings.toml import load_config

ACTIVE = "aggregation.threat=active-server"
LARGE = ("clients.count=120", "cohort.size=60", "cohort.privacy=4")
FEW_LOST = "aggregation.dropout=0.01"  # so that a plan for circles of four is sparse


@pytest.mark.parametrize(
    ("overrides", "privacy"),
    [
        ([], 2),
        (["cohort.privacy=4"], 4),
        (["cohort.policy=partition"], 8),
        (["cohort.policy=partition", "clients.count=41"], 6),
        (["cohort.policy=random"], 1),
        (["aggregation.kind=plain"], 1),
        (["training.algorithm=centralised"], 1),
        ([*LARGE, "aggregation.topology=harary"], 4),
        ([*LARGE, ACTIVE], 4),
        ([*LARGE, ACTIVE, "aggregation.topology=harary", FEW_LOST], 1),
        ([*LARGE, "aggregation.topology=harary", "aggregation.threshold=9", FEW_LOST], 1),
        ([*LARGE, "aggregation.topology=erdos-renyi", "aggregation.connection=0.5"], 1),
        ([*LARGE, "aggregation.topology=harary", "aggregation.dropout_of=session"], 1),
        ([*LARGE, "aggregation.dropout_of=session"], 4),
        (
            [
                *LARGE,
                ACTIVE,
                "aggregation.topology=erdos-renyi",
                "aggregation.connection=0.5",
                "aggregation.collusion=0",
            ],
            1,
        ),
        (["cohort.policy=tests.support.user_code:Neighbours"], 2),
        (["cohort.policy=tests.support.user_code:RoundRobin"], 1),
    ],
)
def test_the_promise_follows_from_the_settings(overrides: list[str], privacy: int) -> None:
    assert promised(load_config(None, overrides)).privacy == privacy


def test_against_an_active_server_auto_is_the_complete_graph() -> None:
    """On sparse graphs T does not hold for parts: they are for those who ask for them by name."""
    assert not promised(load_config(None, [*LARGE, ACTIVE, "aggregation.topology=auto"])).sparse
    assert promised(load_config(None, [*LARGE, "aggregation.topology=auto", FEW_LOST])).sparse
    assert not promised(load_config(None, [*LARGE, "aggregation.topology=auto", "aggregation.dropout=0.3"])).sparse


@pytest.mark.parametrize(
    ("overrides", "colluders"),
    [
        ([], 0),
        ([ACTIVE], 2),  # just under a third of the 8 of a session
        ([ACTIVE, "cohort.policy=iid"], 0),  # a session may have as few as two clients
        ([ACTIVE, "aggregation.collusion=0.0"], 0),
        ([ACTIVE, "aggregation.collusion=0.1"], 4),  # of all 40 clients, in every session
        ([ACTIVE, "aggregation.collusion=0.1", "cohort.policy=iid"], 4),
        (["aggregation.collusion=0.1"], 2),  # a circle has two members, and both may be colluders
        (["aggregation.collusion=0.1", "cohort.privacy=8", "cohort.circles=similar"], 4),
    ],
)
def test_colluders_are_those_that_every_session_withstands(overrides: list[str], colluders: int) -> None:
    promise = promised(load_config(None, overrides))
    assert promise.colluders == colluders
    assert promise.honest == max(0, promise.privacy - colluders)


@given(
    st.builds(
        Promise,
        circle=st.integers(2, 9),
        colluders=st.integers(0, 9),
        clients=st.just(40),
        active=st.booleans(),
        sparse=st.booleans(),
        varying=st.booleans(),
    )
)
def test_the_words_claim_no_more_than_holds(promise: Promise) -> None:
    said = str(promise)
    assert ("No number of rounds changes that" in said) == promise.holds
    assert ("also if it lies" in said) == (promise.holds and promise.active)
    assert f"T - c = {promise.honest}" in said or not promise.colluders or promise.cut
    if promise.active and promise.sparse:
        assert promise.privacy == 1
        assert "not for such parts" in said
        assert "every combination" not in said
    elif promise.active:
        assert "must cover the colluders among all 40 clients" in said
    elif promise.sparse:
        assert "probability that coterie plan prints" in said
    if promise.holds:
        assert ("is not bounded" in said) == promise.varying
        assert ("fedavg or fedprox with a constant learning rate" in said) == promise.varying  # not for SCAFFOLD


@pytest.mark.parametrize(
    ("overrides", "varying"),
    [
        ([], True),
        (["training.shuffle=false"], True),
        (["training.schedule.kind=constant"], True),
        (["training.schedule.kind=constant", "training.shuffle=false"], False),
        (["training.schedule.kind=constant", "training.shuffle=false", "training.algorithm=scaffold"], True),
        (["training.schedule.kind=constant", "training.shuffle=false", "training.algorithm=ditto"], False),
        (["training.algorithm=confined"], False),
    ],
)
def test_rates_orders_and_control_variates_that_change_are_named(overrides: list[str], varying: bool) -> None:
    """Attacks use them: ``tests/adversaries/test_varying_steps.py`` and ``test_varying_order.py``."""
    assert promised(load_config(None, overrides)).varying == varying


@pytest.mark.parametrize(
    ("settings", "headline", "level"),
    [
        ({"cohort.privacy": 4}, "no client can be singled out by adding and subtracting sums (T = 4)", "safe"),
        (
            {"cohort.privacy": 4, "aggregation.threat": "active-server"},
            "singled out by adding and subtracting sums (T = 4, T - c = 2)",
            "safe",
        ),
        ({"cohort.privacy": 2, "aggregation.threat": "active-server"}, "10 rounds</h1>", "caution"),
        (
            {
                "clients.count": 120,
                "cohort.size": 60,
                "cohort.privacy": 4,
                "aggregation.threat": "active-server",
                "aggregation.topology": "harary",
            },
            "10 rounds</h1>",
            "caution",
        ),
    ],
)
def test_page_and_json_say_the_same(settings: dict[str, object], headline: str, level: str) -> None:
    records = make_records(10, strong_privacy=6)
    summary = summarised(records, **{key.replace(".", "__"): value for key, value in settings.items()})
    page = run_page(summary, client_names(), records, "run")
    assert headline in page
    assert f'class="verdict {level}"' in page
    words, numbers = dict(in_words(summary))["Privacy"], summary.numbers()
    assert numbers["promised"] == summary.promise.privacy
    assert numbers["honest"] == summary.promise.honest
    assert numbers["colluders"] == summary.promise.colluders
    assert (numbers["threat"], numbers["sparse"]) == (summary.config.aggregation.threat, summary.promise.sparse)
    assert ("No number of rounds changes that" in words) == (level == "safe")
    assert ("Sums of parts of a session" in page) == summary.promise.cut


def test_the_introduction_says_where_nothing_is_promised() -> None:
    config = load_config(None, [*LARGE, ACTIVE, "aggregation.topology=harary", FEW_LOST])
    assert config.algorithm.introduction(config, promised(config)).endswith("no T promised against a malicious server")
    complete = load_config(None, [*LARGE, ACTIVE, "aggregation.collusion=0.01"])
    assert complete.algorithm.introduction(complete, promised(complete)).endswith(
        "T = 4 promised (T - c = 3 with c = 1 colluders)"
    )
