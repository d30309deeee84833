"""The reception of a node, for deliveries of any engine."""

import logging
from pathlib import Path

import pytest
from tests.support.engine import DirectDelivery, moving

from coterie.deployment.engine import Hello, NodeRequest, Trip, TripReply
from coterie.deployment.reception import Reception

NODE = {"coterie-name": "anna"}


class PlainDelivery(DirectDelivery):
    def __init__(self, function: str, kind: str | None = None) -> None:
        super().__init__(Trip(function, "1", {0: b""}, 1.0), 0, moving)
        self._kind = kind

    def kind(self) -> str | None:
        return self._kind


class BrokenDelivery(PlainDelivery):
    def hello(self) -> Hello:
        raise RuntimeError("the patient's name is Smith")

    def request(self) -> NodeRequest:
        raise KeyError("Smith")


@pytest.mark.parametrize("function", ["train", "train.other", "query", "evaluate", "anything"])
def test_a_message_that_is_no_step_is_refused(function: str) -> None:
    answer = Reception().receive(NODE, PlainDelivery(function))
    assert not answer.payload
    assert "not a step of a session" in answer.reason


@pytest.mark.parametrize(("function", "passes"), [("evaluate", True), ("query.mine", True), ("train", False)])
def test_the_operator_may_allow_evaluations_and_queries_but_no_training(
    function: str, passes: bool, home: Path
) -> None:
    allowing = {**NODE, "coterie-allow": "evaluate, query"}
    answer = Reception().receive(allowing, PlainDelivery(function))
    assert (answer == TripReply(0, b"the app's own reply")) == passes
    assert bool(answer.reason) != passes


def test_an_unknown_kind_and_unusable_settings_have_their_own_reasons() -> None:
    assert "same version" in Reception().receive(NODE, PlainDelivery("train", "dance")).reason
    unusable = {**NODE, "coterie-privacy": "two"}
    assert "cannot use its settings" in Reception().receive(unusable, PlainDelivery("train", "step")).reason


@pytest.mark.parametrize("kind", ["hello", "step", "show"])
def test_the_text_of_an_error_stays_in_the_log_of_the_node(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        answer = Reception().receive(NODE, BrokenDelivery("train", kind))
    assert answer.reason
    assert "Smith" not in answer.reason
