"""A lying Flower server shows one node of a circle a model that the other never sees, and reads the other's change.

The app's model has a gate. While it is closed, a node's loss does not depend on the rest, and its change is zero. The
server begins where an open gate is worse for everybody than a closed one. It shows a closed gate to one node alone and
then the open one to both: the node that has closed its gate refuses to open it, and the sum is the other's change.
A chain of models prevents it: nodes that have judged different models are never summed.

Another way to the same end is one chain that two functions of the app judge, each on one node. Own models are then
evaluated together only if the same function judged them. A third is a chain that one node judges under a configuration
which it refuses afterwards, because a second run was faster with another one: it keeps no such model. A fourth is one
configuration for each node, in training that is given up: then they are not evaluated together either.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray
from tests.support.flower import FakeGrid, FakeNode, make_grid
from tests.support.homes import home as home

from coterie.cohorts.memory import ClientMemory
from coterie.deployment import confined, contribution
from coterie.deployment.confined import ConfinedNode, Fix, own_state
from coterie.deployment.contribution import NodeContribution
from coterie.deployment.descent import Descent
from coterie.deployment.displacement import Displacement
from coterie.deployment.engine import SHOW, AppReply, Arrays
from coterie.deployment.first_use import encode_configuration
from coterie.deployment.form import number_in
from coterie.errors import CoterieError, PeerProtocolError
from coterie.transports.flower import Confinement, PrivateStrategy, private_mod
from coterie.transports.flower.confined import with_displacement
from coterie.transports.flower.records import pack

CENTRES = np.array([[0.5, -0.25, 0.125], [0.25, 0.5, -0.5]])
FAR = np.array([-2.0, 2.0, -2.0], dtype=np.float32)
OPEN, CLOSED = np.array([1.0], np.float32), np.array([-1.0], np.float32)
RATE = 0.125
VICTIM, SHOWN = 0, 1
EXACT = Confinement(spread=0.0, norm=10.0)


def train(message: Message, context: Context) -> Message:
    """Take a step down F(w, gate) = |relu(gate) w - centre|^2 / 2."""
    (arrays,) = message.content.array_records.values()
    weights, gate = arrays["w"].numpy(), arrays["gate"].numpy()
    centre = CENTRES[int(context.node_config["partition-id"])]
    error = max(float(gate[0]), 0.0) * weights - centre
    slope = error * max(float(gate[0]), 0.0)
    moved = {"w": Array(np.asarray(weights - RATE * slope, np.float32)), "gate": Array(gate.copy())}
    measured = MetricRecord({"num-examples": 1, "train_loss": float(error @ error) / 2})
    return Message(RecordDict({"arrays": ArrayRecord(moved), "metrics": measured}), reply_to=message)


class Lying(FedAvg):
    """A server that shows an open gate, a closed one and the open one again, whatever the sums are.

    With ``alone``, the closed gate is not shown in a round: that function shows it to one node.
    """

    def __init__(self, alone: Callable[[], object] | None = None) -> None:
        super().__init__(fraction_evaluate=0.0)
        self._alone = alone

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:  # noqa: ANN401
        gate = CLOSED if server_round == 2 and not self._alone else OPEN
        if server_round == 3 and self._alone:
            self._alone()
        shown = ArrayRecord({"w": Array(FAR.copy()), "gate": Array(gate.copy())})
        return super().configure_train(server_round, shown, config, grid)


def attack(home: Path, *, alone: bool = False) -> dict[int, NDArray[Any]]:
    """Play three rounds; return what the server learns in each, times the number of nodes."""
    app = ClientApp(mods=[private_mod])
    app.train()(train)
    masking: list[str] = []

    def deliver(message: Message, answer: Callable[[Message], Message]) -> Message | None:
        """In the second round, the model reaches one node alone."""
        if "coterie-descent" in message.content:
            if message.metadata.group_id not in masking:
                masking.append(message.metadata.group_id)
            if len(masking) == 2 and not alone and message.metadata.dst_node_id - 100 == VICTIM:
                return None
        return answer(message)

    learnt = {}
    grid = make_grid(app, len(CENTRES), deliver)

    def show() -> None:
        """Show the closed gate to one node, in a message that no session knows of."""
        descent = own_state(home / "nodes" / f"partition-{SHOWN}").descent
        both: list[Arrays] = [{"w": FAR, "gate": gate} for gate in (OPEN, CLOSED)]
        arrays = ArrayRecord({name: Array(array.copy()) for name, array in both[1].items()})
        about = RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": 3})})
        shown = with_displacement(about, Displacement(descent, 0, descent, tuple(both)))
        reply = grid.nodes[100 + SHOWN].answer(
            Message(pack(b"", {"kind": SHOW}, shown), 100 + SHOWN, "train", group_id="show")
        )
        assert not reply.has_error()

    strategy = PrivateStrategy(
        Lying(show if alone else None), confined=EXACT, deadline=1, grace=0.1, most_examples=1, clip=8.0, empty_rounds=0
    )

    def note(server_round: int, arrays: ArrayRecord) -> None:
        results = strategy.grid.results if strategy.grid else []
        if results and (mean := results[-1].value) is not None:
            learnt[server_round] = len(CENTRES) * (mean.arrays["w"] - FAR)

    initial = ArrayRecord({"w": Array(FAR.copy()), "gate": Array(OPEN.copy())})
    strategy.start(grid, initial, 3, timeout=1, evaluate_fn=note)
    return learnt


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes follow any chain."""
    monkeypatch.setattr(confined._Judgement, "check_chain", lambda _self: None)


@pytest.fixture
def hiding(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the open gate the server names a chain of one model, as if it had shown no other."""
    honest = Descent.show

    def show(self: Descent, model: Arrays, present: Collection[str]) -> Displacement:
        shown = honest(self, model, present)
        return Displacement(self.name, 0, self.name, (model,)) if model["gate"] > 0 else shown

    monkeypatch.setattr(Descent, "show", show)


def change_of(node: int) -> NDArray[Any]:
    return np.asarray(-RATE * (FAR - CENTRES[node]))


def test_nodes_that_follow_any_chain_reveal_the_change_of_one_node(home: Path, unchecked: None, hiding: None) -> None:
    learnt = attack(home)
    assert learnt[1] == pytest.approx(change_of(VICTIM) + change_of(SHOWN), abs=1e-5)
    assert 2 not in learnt
    assert learnt[3] == pytest.approx(change_of(VICTIM), abs=1e-5)


def test_a_node_refuses_a_chain_that_lacks_models_it_was_shown(home: Path, hiding: None) -> None:
    learnt = attack(home)
    assert learnt.keys() == {1}


def test_a_complete_chain_is_shown_to_all_nodes(home: Path) -> None:
    learnt = attack(home)
    assert learnt.keys() == {1, 3}
    assert learnt[3] == pytest.approx(np.zeros(3), abs=1e-5), "both nodes closed the gate, or neither did"


def test_a_model_shown_outside_a_session_would_also_reveal_the_change_of_one_node(home: Path, unchecked: None) -> None:
    learnt = attack(home, alone=True)
    assert learnt[2] == pytest.approx(change_of(VICTIM) + change_of(SHOWN), abs=1e-5)
    assert learnt[3] == pytest.approx(change_of(VICTIM), abs=1e-5)


def test_a_node_that_was_the_only_one_to_see_a_model_is_not_summed_with_others(home: Path) -> None:
    learnt = attack(home, alone=True)
    assert learnt.keys() == {1, 2}


def evaluate_by_two_functions(folder: Path) -> float:
    """Let each of two nodes judge one chain by another function; return the sum of their evaluations."""
    descent = bytes(32)
    chain = Displacement(descent, 0, descent, tuple({"w": FAR, "gate": gate} for gate in (OPEN, CLOSED)))
    place = Displacement(descent, 2, chain.links()[-1], task="task train.strict")
    total = 0.0
    for node, (function, sign) in enumerate([("train.strict", -1), ("train.lenient", 1)]):

        def app(model: Arrays, node: int = node, sign: int = sign) -> AppReply:
            """Report a loss that rises or falls as the gate opens, and a quality that is 0 if it is closed."""
            gate = max(float(model["gate"][0]), 0.0)
            error = model["w"] - CENTRES[node]
            return AppReply(model, {"train_loss": sign * gate, "quality": gate * float(error @ error)})

        own = ConfinedNode(folder / str(node), EXACT, str(node), bytes(32), b"", dict, lambda: None)
        own.reply(chain, function, app)
        reply = own.reply(place, "evaluate", app)
        total += number_in(reply.metrics, "quality")
    return total


def test_two_functions_that_judge_one_chain_would_reveal_one_evaluation(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined._Judgement, "check_task", lambda *_: None)
    error = FAR - CENTRES[VICTIM]
    assert evaluate_by_two_functions(home) == pytest.approx(error @ error), "the other node reports a quality of 0"


def test_models_judged_by_different_functions_are_not_evaluated_together(home: Path) -> None:
    with pytest.raises(PeerProtocolError, match=r"strict in a descent that 'task train\.lenient' judges"):
        evaluate_by_two_functions(home)


class Careless(ConfinedNode):
    """A node that writes its model before the configuration is compared with the stored one."""

    def __init__(
        self, folder: Path, confinement: Confinement, name: str, secret: bytes, judging: bytes, fix: Fix, *_: object
    ) -> None:
        super().__init__(folder, confinement, name, secret, judging, fix, lambda: None)


@pytest.fixture
def second_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a node works on its first task, another run's task is stored with another configuration."""
    honest = ClientMemory.fix

    def fix(self: ClientMemory, values: Mapping[str, bytes]) -> Mapping[str, bytes]:
        tasks = [name for name in values if name.startswith("task ")]
        honest(self, {name: encode_configuration([("l2", b"0")]) for name in tasks})
        return honest(self, values)

    monkeypatch.setattr(ClientMemory, "fix", fix)


@pytest.mark.parametrize("early", [False, True])
def test_a_model_that_a_refused_configuration_judged_is_not_kept(
    home: Path, second_run: None, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    if not early:
        monkeypatch.setattr(contribution, "ConfinedNode", Careless)
    assert attack(home) == {}
    kept = list(home.glob("nodes/*/confined/*.model"))
    assert len(kept) == (0 if early else len(CENTRES))


def gated(message: Message, context: Context) -> Message:
    """Take no step; the loss is the distance of the gate from the one that the configuration names."""
    (arrays,) = message.content.array_records.values()
    gate = max(float(arrays["gate"].numpy()[0]), 0.0)
    wish = message.content.config_records["config"]["wish"]
    assert isinstance(wish, float)
    measured = MetricRecord({"num-examples": 1, "train_loss": abs(gate - wish)})
    return Message(RecordDict({"arrays": arrays.copy(), "metrics": measured}), reply_to=message)


def evaluate(message: Message, context: Context) -> Message:
    """Report a quality that is 0 if the gate is closed."""
    arrays = message.content["arrays"]
    assert isinstance(arrays, ArrayRecord)
    gate = max(float(arrays["gate"].numpy()[0]), 0.0)
    error = arrays["w"].numpy() - CENTRES[int(context.node_config["partition-id"])]
    measured = MetricRecord({"num-examples": 1, "quality": gate * float(error @ error)})
    return Message(RecordDict({"metrics": measured}), reply_to=message)


class Decoy(FedAvg):
    """A server that sends two models to be evaluated; the app reads the second one."""

    def configure_evaluate(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:  # noqa: ANN401
        messages = list(super().configure_evaluate(server_round, arrays, config, grid))
        for message in messages:
            message.content = RecordDict({"first": arrays, **dict(message.content.items())})
        return messages


class Waiting(FedAvg):
    """A server that evaluates without training."""

    def configure_train(self, *_: Any, **__: Any) -> Any:  # noqa: ANN401
        return []


def evaluated(home: Path, strategy: FedAvg, wishes: tuple[float, float]) -> float | None:
    """Train each node alone under its own wish in one chain, then evaluate both; return the sum of their qualities."""
    app = ClientApp(mods=[private_mod])
    app.train()(gated)
    app.evaluate()(evaluate)

    def play(run: int, wish: float, strategy: FedAvg, only: int | None = None) -> PrivateStrategy:
        def deliver(message: Message, answer: Callable[[Message], Message]) -> Message | None:
            kept_from = only is not None and message.metadata.dst_node_id - 100 != only
            return None if kept_from and "coterie-descent" in message.content else answer(message)

        private = PrivateStrategy(
            strategy,
            confined=EXACT,
            deadline=1,
            grace=0.1,
            most_examples=1,
            clip=8.0,
            empty_rounds=9,
            resume=False,
            evaluate_metrics={"quality": (0.0, 32.0)},
        )
        nodes = {100 + node: FakeNode(app, {"partition-id": node}) for node in range(len(CENTRES))}
        initial = ArrayRecord({"w": Array(FAR.copy()), "gate": Array(OPEN.copy())})
        with contextlib.suppress(CoterieError):
            private.start(
                FakeGrid(nodes, deliver, run_id=run), initial, 1, timeout=1, train_config=ConfigRecord({"wish": wish})
            )
        return private

    for node, wish in enumerate(wishes):
        play(5 + node, wish, FedAvg(fraction_evaluate=0.0), only=node)
    found = play(9, wishes[VICTIM], strategy).grid
    mean = found.results[-1].value if found and found.results else None
    return None if mean is None else len(CENTRES) * mean.metrics["quality"]


@pytest.fixture
def one_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every training show an open gate, a closed one and the open one, and evaluate at the end of that chain."""
    name = bytes(range(32))
    models: list[Arrays] = [{"w": FAR, "gate": gate} for gate in (OPEN, CLOSED, OPEN)]
    chain = Displacement(name, 0, name, tuple(models))
    monkeypatch.setattr(Descent, "show", lambda *_: chain)
    honest = Descent.place

    def place(self: Descent) -> Displacement:
        end = dataclasses.replace(honest(self), descent=name, first=len(models), before=chain.links()[-1])
        task, configuration = KNOWN.get("task", (end.task, end.configuration))
        return dataclasses.replace(end, task=task or "task train.default", configuration=configuration)

    monkeypatch.setattr(Descent, "place", place)
    noting = Descent.note_task

    def note_task(self: Descent, task: str, configuration: bytes) -> None:
        KNOWN["task"] = task, configuration
        noting(self, task, configuration)

    monkeypatch.setattr(Descent, "note_task", note_task)
    KNOWN.clear()


KNOWN: dict[str, tuple[str, bytes]] = {}
"""The task and the configuration that the lying server trained last, in any of its runs."""


def squared(node: int) -> float:
    error = FAR - CENTRES[node]
    return float(error @ error)


def test_two_configurations_that_judge_one_chain_would_reveal_one_evaluation(
    home: Path, one_chain: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NodeContribution, "_check_judging", lambda *_: None)
    found = evaluated(home, Waiting(), (1.0, 0.0))
    assert found == pytest.approx(squared(VICTIM), abs=1e-4), "the other node reports a quality of 0"


def test_models_judged_under_different_configurations_are_not_evaluated_together(home: Path, one_chain: None) -> None:
    assert evaluated(home, Waiting(), (1.0, 0.0)) is None


def test_models_judged_under_one_configuration_are_evaluated_together(home: Path, one_chain: None) -> None:
    found = evaluated(home, Waiting(), (1.0, 1.0))
    assert found == pytest.approx(squared(VICTIM) + squared(SHOWN), abs=1e-4)


def test_an_evaluation_with_two_models_is_refused(home: Path, one_chain: None) -> None:
    assert evaluated(home, Decoy(), (1.0, 1.0)) is None
