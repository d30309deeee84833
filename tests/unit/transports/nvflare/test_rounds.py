"""Rounds over NVFlare's tasks, with sites that answer, fail, fall silent and go away. NVFlare itself is not needed."""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.homes import folder_in_memory
from tests.support.interpreter import printed_by
from tests.support.nvflare_sites import APP, MODEL, Sites, aggregator, assignment, circles, mean_of

from coterie.cohorts import Ledger
from coterie.deployment.engine import AppReply, Arrays, Trip
from coterie.deployment.home import server_home
from coterie.errors import CarrierError, NothingTrained, PeerProtocolError
from coterie.transports.nvflare.carrier import NvflareCarrier
from coterie.transports.nvflare.messages import TASK, Answer, NodeMessage, Work, decode, encode, node_number
from coterie.transports.nvflare.names import WEIGHT
from coterie.transports.nvflare.request import SiteApp, TaskDelivery


@pytest.fixture
def ledger(home: Path) -> Ledger:
    return Ledger.open(server_home() / "ledger.sqlite")


def revealed(ledger: Ledger, number: int) -> set[str]:
    return set(ledger.revealed(number))


@pytest.mark.parametrize(("protocol", "trips"), [("auto", 2), ("papers", 5)])
def test_rounds_are_the_weighted_mean_and_keep_the_types_of_arrays(ledger: Ledger, protocol: str, trips: int) -> None:
    sites = Sites(4)
    rounds = aggregator(sites, ledger, protocol=protocol)
    for number in range(2):
        mean = rounds.mean(assignment(current=number), 1)
        assert mean is not None
        assert np.allclose(mean.arrays["w"], mean_of(sites.names), atol=3e-3)
        assert mean.arrays["w"].dtype == np.float32
        assert len(rounds.traffic[-1].seconds) == trips
    assert [len(revealed(ledger, number)) for number in (1, 2)] == [4, 4]
    assert sorted(sites.trained) == sorted(sites.names * 2)  # once in every round, whatever was asked before


def test_the_server_gets_one_sum_and_no_task_of_it_has_a_plain_model(ledger: Ledger) -> None:
    sites = Sites(4)
    aggregator(sites, ledger).mean(assignment(), 1)
    moved = np.full(3, 4 / 8, np.float32).tobytes()
    for site, message in sites.asked:
        answer = decode(sites.answer(site, encode(message)), Answer, site)
        assert moved not in answer.payload


def test_a_silent_site_takes_its_circle_along(ledger: Ledger) -> None:
    sites = Sites(6)
    sites.fault = lambda site, message: site == "site-2" and message.kind == "step"
    rounds = aggregator(sites, ledger, colluders=0)
    mean = rounds.mean(assignment(), 0.3)
    others = set(sites.names) - next(circle for circle in circles(server_home()) if "site-2" in circle)
    assert revealed(ledger, 1) == others
    assert mean is not None
    assert np.allclose(mean.arrays["w"], mean_of(others), atol=3e-3)
    assert rounds.reasons == {"site-2": "did not answer within 0.3 s"}


def test_a_site_that_is_gone_is_not_waited_for(ledger: Ledger) -> None:
    sites = Sites(6)
    rounds = aggregator(sites, ledger, colluders=0, deadline=3600)

    def dies(site: str, message: NodeMessage) -> bool:
        if site == "site-5" and message.work:
            sites.gone.add(site)
        return site in sites.gone

    sites.fault = dies
    assert rounds.mean(assignment(), 3600) is not None
    assert rounds.reasons == {"site-5": "went away"}
    assert len(revealed(ledger, 1)) == 4


def test_a_round_that_too_many_leave_reveals_nothing(ledger: Ledger) -> None:
    sites = Sites(4)
    lost = {"site-1", "site-2", "site-3"}
    sites.fault = lambda site, message: site in lost and message.kind == "step"
    rounds = aggregator(sites, ledger, empty_rounds=2)
    for number in range(2):
        assert rounds.mean(assignment(current=number), 0.3) is None
        if number == 0:
            rounds.count(empty=True)
    with pytest.raises(NothingTrained, match="2 rounds in a row"):
        rounds.count(empty=True)
    assert [revealed(ledger, number) for number in (1, 2)] == [set(), set()]
    assert not any(message.about.endswith("reveal") for _, message in sites.asked)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), protocol=st.sampled_from(["two-trips", "papers"]))
def test_whatever_is_lost_sums_are_over_whole_circles(
    data: st.DataObject, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = data.draw(st.sets(st.tuples(st.integers(1, 6), st.integers(1, 8)), max_size=3))
    with folder_in_memory() as folder:
        monkeypatch.setenv("COTERIE_HOME", folder)
        sites = Sites(6)
        counts = dict.fromkeys(sites.names, 0)

        def loses(site: str, message: NodeMessage) -> bool:
            counts[site] += message.kind == "step"
            if (int(site.removeprefix("site-")), counts[site]) in lost and message.kind == "step":
                sites.gone.add(site)
            return site in sites.gone

        sites.fault = loses
        with Ledger.open(server_home() / "ledger.sqlite") as history:
            rounds = aggregator(sites, history, colluders=0, protocol=protocol)
            for number in range(2):
                mean = rounds.mean(assignment(current=number), 1)
                if mean is None:
                    continue
                summed = rounds.results[-1].revealed
                assert all(circle <= set(summed) or not circle & set(summed) for circle in circles(server_home()))
                assert np.allclose(mean.arrays["w"], mean_of(summed), atol=3e-3)


def test_the_same_task_again_gets_the_same_bytes_from_a_new_process(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = Sites(4)
    first: dict[bytes, bytes] = {}
    answers = sites.answer

    def remembers(site: str, data: bytes) -> bytes:
        answer = answers(site, data)
        if decode(data, NodeMessage, "server").kind == "step":
            assert answers(site, data) == answer
            first[site.encode() + data] = answer
        return answer

    monkeypatch.setattr(sites, "answer", remembers)
    assert aggregator(sites, ledger).mean(assignment(), 1) is not None
    assert len(first) == 8  # two trips to four sites
    assert sorted(sites.trained) == sorted(sites.names)


def test_a_late_result_is_ignored(ledger: Ledger) -> None:
    sites = Sites(6)
    late: list[bytes] = []

    def is_late(site: str, message: NodeMessage) -> bool:
        if site == "site-1" and message.work:
            late.append(sites.answer(site, encode(message)))
            return True
        if late and not message.work:  # a later trip
            sites.results["site-1"](late[0], "")
        return False

    sites.fault = is_late
    rounds = aggregator(sites, ledger, colluders=0)
    rounds.mean(assignment(), 0.3)
    assert "site-1" in rounds.reasons
    assert "site-1" not in revealed(ledger, 1)


def test_all_tasks_are_withdrawn_when_a_job_is_aborted(home: Path) -> None:
    sites = Sites(3)
    sites.fault = lambda _site, _message: True
    sites.aborted = True
    trip = Trip("train", "1", {node_number(site): b"" for site in sites.names}, 3600.0)
    with pytest.raises(CarrierError, match="aborted"):
        list(NvflareCarrier(sites, 1).send(trip))
    assert sites.standing == set()


def test_reasons_for_foreign_answers_quote_nothing_of_them(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sites = Sites(4)
    sites.code = {"site-1": "EXECUTION_EXCEPTION\nforged line"}
    nodes = {node_number(site): site for site in sites.names}
    answers = {"site-2": b"\xc1", "site-3": b"", "site-4": encode(Answer(refusal="what a secret"))}
    monkeypatch.setattr(sites, "answer", lambda site, _data: answers[site])
    trip = Trip("train", "1", dict.fromkeys(nodes, b""), 1.0)
    reasons = {nodes[reply.node]: reply.reason for reply in NvflareCarrier(sites, 1).send(trip)}
    assert "NVFlare's return code" in reasons["site-1"]
    assert "\n" not in reasons["site-1"]
    assert "not a message of Coterie" in reasons["site-2"]
    assert "not a message of Coterie" in reasons["site-3"]
    assert "secret" not in reasons["site-4"]


def test_a_site_that_left_the_job_is_named(home: Path) -> None:
    sites = Sites(2)
    trip = Trip("train", "1", {node_number("site-9"): b""}, 1.0)
    (reply,) = NvflareCarrier(sites, 1).send(trip)
    assert "not in this job" in reply.reason


@pytest.mark.parametrize(
    "other",
    [
        SiteApp({"executors": [{"args": {"task_script_args": "--rate 0"}}]}, APP.files),
        SiteApp(APP.config, {"client.py": "b2"}),
        SiteApp(APP.config, {**APP.files, "more.py": "c3"}),
    ],
    ids=["configuration", "code", "more code"],
)
def test_a_site_with_another_app_is_not_summed(ledger: Ledger, other: SiteApp) -> None:
    sites = Sites(6, {"site-3": other})
    rounds = aggregator(sites, ledger, colluders=0)
    assert rounds.mean(assignment(), 1) is not None
    assert "other work than the session" in rounds.reasons["site-3"]
    assert "site-3" not in revealed(ledger, 1)
    assert "site-3" not in sites.trained


def test_the_configuration_of_the_first_contribution_is_fixed_unless_it_may_vary(ledger: Ledger) -> None:
    sites = Sites(4)
    rounds = aggregator(sites, ledger, varying=("rate",))
    assert rounds.mean(assignment(meta={"mu": 0.1, "rate": 1}), 1) is not None
    assert rounds.mean(assignment(meta={"mu": 0.1, "rate": 2}, current=1), 1) is not None
    assert rounds.mean(assignment(meta={"mu": 0.2, "rate": 2}, current=2), 1) is None
    assert all("configured differently" in reason for reason in rounds.reasons.values())
    wider = {"w": np.zeros(4, np.float32), "count": MODEL["count"]}
    assert rounds.mean(assignment(wider, meta={"mu": 0.1, "rate": 2}), 1) is None


def test_the_configuration_of_a_later_job_must_be_the_same(ledger: Ledger) -> None:
    assert aggregator(Sites(4), ledger, run=1).mean(assignment(), 1) is not None
    changed = SiteApp({"executors": [{"args": {"task_script_args": "--rate 7"}}]}, APP.files)
    names = Sites(4).names
    rounds = aggregator(Sites(4, dict.fromkeys(names, changed)), ledger, run=2)
    assert rounds.mean(assignment(), 1) is None
    assert all("configured differently" in reason for reason in rounds.reasons.values())
    new_code = SiteApp(APP.config, {"client.py": "corrected"})
    assert aggregator(Sites(4, dict.fromkeys(names, new_code)), ledger, run=3).mean(assignment(), 1) is not None


@pytest.mark.parametrize("task", ["train", "validate", "submit_model", "anything"])
def test_a_task_of_the_apps_own_is_refused(task: str, home: Path) -> None:
    answer = decode(Sites(1).answer("site-1", None, task), Answer, "site-1")
    assert answer.refusal == "plain"


@pytest.mark.parametrize("function", ["train.1", "train.default", "evaluate.other", "query", "validate", ""])
def test_a_function_that_no_task_has_is_refused(function: str, home: Path) -> None:
    message = encode(NodeMessage("step", 7, function, "1", 0.0, 60.0))
    delivery = TaskDelivery(TASK, message, "site-1", lambda: APP, lambda *_: AppReply({}, {}))
    with pytest.raises(PeerProtocolError, match=r"asked for the function .*; there are train, evaluate") as refused:
        delivery.request()
    assert refused.value.about == "form"
    assert decode(Sites(1).answer("site-1", message), Answer, "site-1").refusal == "form"


def test_the_operator_may_allow_plain_evaluation(home: Path) -> None:
    folder = home / "nodes" / "site-1"
    folder.mkdir(parents=True)
    (folder / "node.toml").write_text('allow = "evaluate"\n')
    sites = Sites(1)
    assert decode(sites.answer("site-1", None, "validate"), Answer, "site-1").payload == b"the app's own reply"
    assert decode(sites.answer("site-1", None, "train"), Answer, "site-1").refusal == "plain"


@given(st.binary(max_size=200))
def test_a_site_refuses_bytes_that_are_no_message(data: bytes) -> None:
    with (
        folder_in_memory() as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("COTERIE_HOME", folder)
        assert decode(Sites(1).answer("site-1", data), Answer, "site-1").refusal is not None


def test_modules_that_do_not_need_nvflare_do_not_import_it() -> None:
    program = (
        "import sys, coterie.transports.nvflare\n"
        "from coterie.transports.nvflare import carrier, request\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('nvflare', 'flwr', 'torch')])"
    )
    assert printed_by(program) == "[]\n"


def test_no_line_of_a_sites_log_has_a_number_of_its_data(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    """NVFlare may send logs of a site to the server."""
    caplog.set_level(logging.INFO, "coterie.deployment")
    steps = {"site-1": 3137, "site-2": 4139}

    class Counting(Sites):
        def _train(self, site: str) -> Callable[[str, Arrays, Work], AppReply]:
            def train(_function: str, arrays: Arrays, _work: Work) -> AppReply:
                w = np.full(5003, 0.1, np.float32)
                w[:1117] = np.nan
                return AppReply({"w": w}, {WEIGHT: steps[site]})

            return train

    rounds, model = aggregator(Counting(2), ledger, colluders=0, most_examples=3140), {"w": np.zeros(5003, np.float32)}
    for current in range(2):
        assert rounds.mean(assignment(model, current), 1) is not None
        steps["site-1"] = 3138
    said = ("is more than a node counts for", "has changed; this node keeps its first weight", "entries that are NaN")
    assert all(words in caplog.text for words in said)
    assert not any(number in caplog.text for number in ("3137", "3138", "3140", "4139", "1117", "3886"))
