"""Logs and events that operators of a server and of nodes get about a round."""

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from tests.support.flower import FakeGrid, initial_arrays, make_app, make_grid
from tests.support.flower_strategies import QUIET, private_grid

from coterie.deployment.events import RoundEvent, StepEvent
from coterie.errors import NothingTrained
from coterie.transports.flower import PrivateStrategy, private_mod

EXAMPLES = Path(__file__).parents[4] / "examples" / "flower"
STEPS = ["contribute", "reveal"]


def test_a_node_logs_one_line_for_each_step_with_its_name_and_flowers_round(log: pytest.LogCaptureFixture) -> None:
    PrivateStrategy(FedAvg(**QUIET), resume=False).start(private_grid(), initial_arrays(), 2)
    log.clear()
    PrivateStrategy(FedAvg(**QUIET), resume=False).start(private_grid(), initial_arrays(), 2)
    lines = [line for line in log.messages if line.startswith("Coterie: partition-2: ")]
    assert "says who it is: identity key" in lines[0]
    assert "trusts roster version 0" in lines[0]
    answered = [line for line in lines if "answered with" in line]
    assert [line.partition(": answered with ")[0] for line in answered] == [
        f"Coterie: partition-2: round {number} (sum {2 + number} of the ledger): {step}"
        for number in (1, 2)
        for step in STEPS
    ]
    assert "Coterie: round 2 (sum 4 of the ledger): one sum over 4 clients" in log.messages


@pytest.mark.parametrize(
    ("protocol", "line"),
    [
        ("auto", "two trips to every node, or three if many leave (n^2 / T = 8 for 4 nodes in circles of 2; two trips "
         "are taken up to 10,000)"),
        ("papers", "the papers' protocol (protocol='papers')"),
    ],
)  # fmt: skip
def test_the_server_logs_once_which_protocol_rounds_take_and_why(
    protocol: str, line: str, log: pytest.LogCaptureFixture
) -> None:
    PrivateStrategy(FedAvg(**QUIET), protocol=protocol).start(private_grid(), initial_arrays(), 2)
    assert [message for message in log.messages if "rounds take" in message] == [f"Coterie: rounds take {line}"]


def test_the_log_names_rounds_of_evaluation(log: pytest.LogCaptureFixture) -> None:
    kept = PrivateStrategy(FedAvg(), evaluate_metrics={"accuracy": (0, 1)})
    kept.start(private_grid(), initial_arrays(), 1)
    assert "Coterie: round 1: one sum over 4 clients" in log.messages
    assert "Coterie: evaluation of round 1 (sum 2 of the ledger): one sum over 4 clients" in log.messages


def failing_once() -> FakeGrid:
    """Return a grid whose app fails in the first round on every node."""
    app, calls = ClientApp(mods=[private_mod]), {"count": 0}
    inner = make_app()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        calls["count"] += 1
        if calls["count"] <= 4:
            raise ValueError("patient 17")
        return inner(message, context)

    return make_grid(app, 4)


def test_nodes_learn_with_the_next_invitation_that_a_round_had_no_result_and_why(log: pytest.LogCaptureFixture) -> None:
    PrivateStrategy(FedAvg(**QUIET), deadline=2).start(failing_once(), initial_arrays(), 3, timeout=2)
    told = [line for line in log.messages if "the server says: " in line]
    assert len(told) == 4
    assert told[0].startswith("Coterie: partition-")
    assert "round 1 had no result (aborted before reveal): " in told[0]
    refused = [line for line in log.messages if "refuses a message" in line]
    assert len(refused) == 4
    assert all(": round 1: contribute: refuses a message: the app's function failed" in line for line in refused)


def test_a_server_cannot_forge_lines_in_a_nodes_log(log: pytest.LogCaptureFixture) -> None:
    def forge(message: Message, answer: Callable[[Message], Message]) -> Message:
        header = message.content.config_records["coterie"]
        header["about"] = header["notice"] = "x\nCoterie: all is well" + "y" * 10_000
        return answer(message)

    grid = private_grid()
    grid.deliver = forge
    PrivateStrategy(FedAvg(**QUIET)).start(grid, initial_arrays(), 1)
    forged = [line for line in log.messages if "all is well" in line]
    assert forged
    assert all("\n" not in line and len(line) < 500 for line in forged)


def test_an_observer_gets_an_event_for_each_step_and_each_round() -> None:
    events: list[StepEvent | RoundEvent] = []
    PrivateStrategy(FedAvg(**QUIET), resume=False).start(private_grid(), initial_arrays(), 1)
    kept = PrivateStrategy(FedAvg(**QUIET), observer=events.append)
    kept.start(private_grid(), initial_arrays(), 2)
    steps = [event for event in events if isinstance(event, StepEvent)]
    rounds = [event for event in events if isinstance(event, RoundEvent)]
    assert [(event.round, event.number, event.step) for event in steps] == [
        (number, number + 1, step) for number in (1, 2) for step in STEPS
    ]
    assert all(event.asked == 4 and event.left == {} and event.sent > 0 and event.received > 0 for event in steps)
    assert [(event.round, event.outcome, event.aggregated, event.reason) for event in rounds] == [
        (1, "completed", 4, ""),
        (2, "completed", 4, ""),
    ]
    assert isinstance(events[-1], RoundEvent)


def test_events_name_who_left_and_why() -> None:
    events: list[StepEvent | RoundEvent] = []
    kept = PrivateStrategy(FedAvg(**QUIET), deadline=2, observer=events.append, empty_rounds=1)
    with pytest.raises(NothingTrained):
        kept.start(failing_once(), initial_arrays(), 1, timeout=2)
    contribute = next(event for event in events if isinstance(event, StepEvent) and event.step == "contribute")
    assert sorted(contribute.left) == [f"partition-{number}" for number in range(4)]
    assert "patient" not in str(events)
    assert isinstance(events[-1], RoundEvent)
    assert events[-1].outcome == "aborted before reveal"
    assert events[-1].reason


def test_an_observer_that_fails_does_not_disturb_the_round(log: pytest.LogCaptureFixture) -> None:
    def fails(_event: StepEvent | RoundEvent) -> None:
        raise OSError("no space")

    kept = PrivateStrategy(FedAvg(**QUIET), observer=fails)
    result = kept.start(private_grid(), initial_arrays(), 1)
    assert list(result.train_metrics_clientapp) == [1]
    assert sum("the observer failed" in line for line in log.messages) == 3


def test_a_mod_that_is_listed_twice_is_reported(log: pytest.LogCaptureFixture) -> None:
    app = ClientApp(mods=[private_mod])
    inner = make_app()

    @app.train(mods=[private_mod])
    def train(message: Message, context: Context) -> Message:
        return inner(message, context)

    with pytest.raises(NothingTrained, match="its app failed"):
        PrivateStrategy(FedAvg(**QUIET), deadline=2).start(make_grid(app, 4), initial_arrays(), 1)
    assert any("private_mod is listed twice" in line for line in log.messages)


def test_the_log_of_a_node_names_extra_arrays_of_a_reply(log: pytest.LogCaptureFixture) -> None:
    app = ClientApp(mods=[private_mod])
    inner = make_app()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        reply = inner(message, context)
        arrays = ArrayRecord({**reply.content.array_records["arrays"], "head.bias": Array(np.zeros(2))})
        records = RecordDict({"arrays": arrays, "metrics": reply.content.metric_records["metrics"]})
        return Message(records, reply_to=message)

    with pytest.raises(NothingTrained, match="has arrays that the model it was sent does not have") as caught:
        PrivateStrategy(FedAvg(**QUIET), deadline=2).start(make_grid(app, 4), initial_arrays(), 1)
    assert "head.bias" not in str(caught.value)  # names of a reply stay on the node
    assert any("they would be lost: head.bias" in line for line in log.messages)


def test_the_example_writes_metrics_in_the_text_format_of_prometheus(tmp_path: Path) -> None:
    metrics = runpy.run_path(str(EXAMPLES / "prometheus.py"))["PrometheusFile"](tmp_path / "coterie.prom")
    kept = PrivateStrategy(FedAvg(**QUIET), deadline=2, observer=metrics)
    kept.start(failing_once(), initial_arrays(), 3, timeout=2)
    lines = (tmp_path / "coterie.prom").read_text().splitlines()
    line = re.compile(r'[a-z_]+(\{[a-z]+="[a-z ]+"\})? [0-9.e+-]+')
    assert all(line.fullmatch(one) for one in lines if not one.startswith("# "))
    assert {one.split()[2] for one in lines if one.startswith("# TYPE")} >= {"coterie_rounds_total"}
    assert 'coterie_rounds_total{outcome="completed"} 2' in lines
    assert 'coterie_rounds_total{outcome="aborted before reveal"} 1' in lines
    assert 'coterie_departures_total{step="contribute"} 4' in lines
    assert "coterie_round_aggregated 4" in lines
    assert [path.name for path in tmp_path.iterdir()] == ["coterie.prom"]
