"""Runs that train nothing fail, and the error names the nodes and their reasons."""

import logging
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, arrays_size_mod, fixedclipping_mod, message_size_mod
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.serverapp.strategy import FedAvg
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.flower import FakeGrid, initial_arrays, make_app, make_grid, reply_of
from tests.support.flower_strategies import QUIET, Halving, private_grid

from coterie.deployment.form import Form
from coterie.deployment.home import server_home
from coterie.deployment.reasons import Asked, Reason
from coterie.deployment.recipe import Metric, RosterRecipe
from coterie.deployment.replies import check_reply
from coterie.errors import ConfigError, NothingTrained
from coterie.transports.flower import PrivateStrategy, private_mod
from coterie.transports.flower.records import RecordArrays

Reply = Callable[[ArrayRecord], RecordDict]
METRICS = {"num-examples": 10, "train_loss": 0.5}
LOSS = {"train_loss": (0.0, 8.0)}
ALL = {f"partition-{number}" for number in range(4)}


def replying(reply: Reply) -> FakeGrid:
    """Return a grid whose nodes answer to training with the result of a function of the model."""
    app = ClientApp(mods=[private_mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(reply(message.content.array_records["arrays"]), reply_to=message)

    return make_grid(app, 4)


def records(arrays: ArrayRecord, metrics: dict[str, int | float | list[float]] | None = None) -> RecordDict:
    return RecordDict({"arrays": arrays, "metrics": MetricRecord({**METRICS} if metrics is None else {**metrics})})


def without(arrays: ArrayRecord, name: str) -> ArrayRecord:
    return ArrayRecord({key: array for key, array in arrays.items() if key != name})


def with_array(arrays: ArrayRecord, name: str, array: np.ndarray) -> ArrayRecord:
    return ArrayRecord({**arrays, name: Array(array)})


def fail(_arrays: ArrayRecord) -> RecordDict:
    raise ValueError("patient 17")


STRUCTURES: dict[str, tuple[Reply, str]] = {
    "misspelt metric": (
        lambda arrays: records(arrays, {"num-examples": 10, "trainloss": 0.5}),
        "its reply lacks the metric 'train_loss' as a number, which train_metrics declares",
    ),
    "metric that is a list": (
        lambda arrays: records(arrays, {"num-examples": 10, "train_loss": [0.5]}),
        "its reply lacks the metric 'train_loss' as a number",
    ),
    "no weight": (
        lambda arrays: records(arrays, {"train_loss": 0.5}),
        "its reply lacks the number 'num-examples', which replies are weighted by",
    ),
    "no array": (
        lambda arrays: records(without(arrays, "w")),
        "its reply lacks the array 'w' of the model that it was sent",
    ),
    "another shape": (
        lambda arrays: records(with_array(arrays, "w", np.zeros((3, 1)))),
        "its reply has the array 'w' in another shape than it was sent",
    ),
    "no numbers": (
        lambda arrays: records(with_array(arrays, "w", np.zeros(3, dtype=complex))),
        "its reply has the array 'w' in another shape than it was sent, or not of numbers",
    ),
    "no metrics at all": (
        lambda arrays: RecordDict({"arrays": arrays}),
        "its app must reply with exactly one model",
    ),
    "function that raises": (fail, "its app failed"),
}


@pytest.mark.parametrize("case", STRUCTURES)
def test_a_run_whose_replies_cannot_be_used_fails_and_names_nodes_and_what_is_missing(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    reply, words = STRUCTURES[case]
    kept = PrivateStrategy(FedAvg(**QUIET), train_metrics=LOSS, deadline=2)
    with pytest.raises(NothingTrained, match="1, partition-2, partition-3: ") as caught:
        kept.start(replying(reply), initial_arrays(), 1, timeout=2)
    assert set(caught.value.reasons) == ALL
    assert all(words in reason for reason in caught.value.reasons.values())
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any("partition-0 leaves round 1 in step contribute" in line and words in line for line in told)
    assert any("round 1 has no result: partition-0, partition-1" in line and words in line for line in told)
    server = [line for line in told if "refuses a message" not in line and "app's function failed" not in line]
    assert not any("patient" in line for line in server)


class Compressing:
    """A mod that halves the precision of what it sends."""

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        for record in reply.content.array_records.values() if reply.has_content() else ():
            for name, array in record.items():
                record[name] = Array(np.asarray(array.numpy(), dtype=np.float16))
        return reply


class Adding:
    """A mod that adds a record to the request."""

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        message.content["extra"] = ConfigRecord({"seed": 5})
        return call_next(message, context)


def found_roster() -> None:
    PrivateStrategy(FedAvg(**QUIET), resume=False).start(private_grid(), initial_arrays(), 1)


AROUND = "private_mod comes first, as in ClientApp(mods=[private_mod, ...])"


@pytest.mark.parametrize(
    "mods",
    [
        [LocalDpMod(1.0, 1.0, 1.0, 1e-5), private_mod],
        [fixedclipping_mod, private_mod],
        [Compressing(), private_mod],
        [],
    ],
    ids=["local-dp", "clipping", "compression", "none"],
)
@pytest.mark.parametrize("founded", [False, True], ids=["first", "later"])
def test_a_mod_in_the_wrong_place_is_reported_before_the_first_round(
    mods: list[Mod], founded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if founded:
        found_roster()
    kept = PrivateStrategy(FedAvg(**QUIET), deadline=4)
    with pytest.raises(NothingTrained if founded else ConfigError) as caught:
        kept.start(make_grid(make_app(mods), 4), initial_arrays(), 2, timeout=2)  # type: ignore[arg-type]
    assert AROUND in str(caught.value)
    assert "node 100, node 101, node 102, node 103: " in str(caught.value)
    lines = [record.getMessage() for record in caplog.records]
    first = next(number for number, line in enumerate(lines) if AROUND in line)
    assert not any("[ROUND 1/2]" in line for line in lines[:first])


def test_a_mod_that_changes_messages_is_reported_before_the_first_round(caplog: pytest.LogCaptureFixture) -> None:
    kept = PrivateStrategy(FedAvg(**QUIET), deadline=2)
    with pytest.raises(NothingTrained, match="received other work") as caught:
        kept.start(make_grid(make_app([Adding(), private_mod]), 4), initial_arrays(), 1)  # type: ignore[list-item]
    assert AROUND in str(caught.value)
    lines = [record.getMessage() for record in caplog.records]
    warned = next(number for number, line in enumerate(lines) if "changes the requests to this node" in line)
    assert "partition-0, partition-1, partition-2, partition-3" in lines[warned]
    assert not any("[ROUND 1/1]" in line for line in lines[:warned])


def test_a_failing_inner_mod_is_reported_as_the_apps_failure() -> None:
    kept = PrivateStrategy(FedAvg(**QUIET), deadline=2)
    with pytest.raises(NothingTrained, match="its app failed"):
        kept.start(make_grid(make_app([private_mod, fixedclipping_mod]), 4), initial_arrays(), 1)  # type: ignore[list-item]


@pytest.mark.parametrize("mods", [[private_mod, LocalDpMod(1.0, 1.0, 1.0, 1e-5)], [message_size_mod, private_mod],
                                  [arrays_size_mod, private_mod], [private_mod, message_size_mod]])  # fmt: skip
def test_mods_in_a_working_order_train_without_a_warning(mods: list[Mod], caplog: pytest.LogCaptureFixture) -> None:
    kept = PrivateStrategy(FedAvg(**QUIET), deadline=2)
    kept.start(make_grid(make_app(mods), 4), initial_arrays(), 1)  # type: ignore[arg-type]
    assert not any(
        "private_mod" in record.getMessage() or "leaves round" in record.getMessage() for record in caplog.records
    )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"coterie-privacy": 3}, "does not trust the roster"),
        ({"coterie-minimum": 5}, "requires stricter terms than this session has"),
        ({"coterie-roster": "00" * 32}, "does not trust the roster"),
        ({"coterie-nonsense": 1}, "cannot use its settings"),
    ],
)
def test_refusals_by_the_settings_of_an_operator_have_their_reasons(config: dict[str, object], words: str) -> None:
    found_roster()
    kept = PrivateStrategy(FedAvg(**QUIET), deadline=2)
    with pytest.raises(NothingTrained) as caught:
        kept.start(private_grid(config=config), initial_arrays(), 1)
    assert len(caught.value.reasons) == 4
    assert all(words in reason for reason in caught.value.reasons.values())


class Moody:
    """Nodes that answer in some rounds of a run and fail in others."""

    def __init__(self, works: Iterable[bool]) -> None:
        self.works = list(works)
        self.trained = 0

    def grid(self) -> FakeGrid:
        def reply(arrays: ArrayRecord) -> RecordDict:
            number, self.trained = self.trained // 4, self.trained + 1
            if not self.works[number]:
                raise ValueError
            moved = {name: Array(np.asarray(array.numpy() + 0.25)) for name, array in arrays.items()}
            return records(ArrayRecord(moved))

        return replying(reply)


@settings(max_examples=6)
@given(works=st.lists(st.booleans(), min_size=1, max_size=5), most=st.integers(0, 3))
@example(works=[False, True, False], most=2)
@example(works=[True, False, False, True], most=2)
@example(works=[False, False], most=3)
@example(works=[False, False], most=0)
def test_a_run_ends_after_consecutive_empty_rounds_and_can_be_resumed(works: list[bool], most: int) -> None:
    for left_over in server_home().glob("*.checkpoint"):
        left_over.unlink()
    moody, rounds = Moody(works), len(works)
    ends = next((end for end in range(most, rounds + 1) if most and not any(works[end - most : end])), None)
    fails = ends is not None or (most > 0 and not any(works))
    kept = PrivateStrategy(FedAvg(**QUIET), deadline=2, empty_rounds=most)
    if not fails:
        result = kept.start(moody.grid(), initial_arrays(), rounds, timeout=2)
        assert result.arrays["b"].numpy() == pytest.approx(1 + 0.25 * sum(works), abs=0.01)
        return
    with pytest.raises(NothingTrained):
        kept.start(moody.grid(), initial_arrays(), rounds, timeout=2)
    assert moody.trained == 4 * (ends or rounds)
    done = max((number for number, worked in enumerate(works[:ends], start=1) if worked), default=0)
    again = Moody([True] * rounds)
    result = PrivateStrategy(FedAvg(**QUIET), deadline=2).start(again.grid(), initial_arrays(), rounds, timeout=2)
    assert again.trained == 4 * (rounds - done)  # rounds without a result are repeated
    trained = sum(works[:done]) + rounds - done
    assert result.arrays["b"].numpy() == pytest.approx(1 + 0.25 * trained, abs=0.01)


def test_a_repeated_round_has_its_first_configuration() -> None:
    first, then = Halving(fraction_evaluate=1.0), Halving(fraction_evaluate=1.0)
    config = ConfigRecord({"lr": 1.0})

    def measure(number: int, _arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({"number": number})

    with pytest.raises(NothingTrained):
        PrivateStrategy(first, deadline=2, empty_rounds=2, varying=("lr",)).start(
            Moody([True, True, False, False]).grid(), initial_arrays(), 5, 2.0, config, None, measure
        )
    PrivateStrategy(then, deadline=2, varying=("lr",)).start(
        Moody([True] * 3).grid(), initial_arrays(), 5, 2.0, ConfigRecord({"lr": 1.0}), None, measure
    )
    assert first.seen == [(1, 0.5), (2, 0.25), (3, 0.125), (4, 0.0625)]
    assert then.seen == [(3, 0.125), (4, 0.0625), (5, 0.03125)]


def test_a_strategy_without_training_can_still_evaluate() -> None:
    kept = PrivateStrategy(FedAvg(fraction_train=0.0), evaluate_metrics={"accuracy": (0, 1)}, deadline=2)
    result = kept.start(private_grid(), initial_arrays(), 1)
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(0.15, abs=1e-3)


def test_equal_reasons_of_many_nodes_are_grouped(caplog: pytest.LogCaptureFixture) -> None:
    app = ClientApp(mods=[private_mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        raise ValueError

    with pytest.raises(NothingTrained, match="and 7 more: its app failed"):
        PrivateStrategy(FedAvg(**QUIET), deadline=4).start(make_grid(app, 12), initial_arrays(), 1, timeout=4)
    told = [record.getMessage() for record in caplog.records if " in step " in record.getMessage()]
    assert len(told) == 4
    assert "9 more leave round 1 in step contribute" in told[-1]


ASKED = Asked("train_metrics", ("loss",), ("w", "b"), "n")
PLACES = {Reason.METRIC: 1, Reason.ARRAY: 2, Reason.SHAPE: 2}
KNOWN = [reason for reason in Reason if reason not in PLACES]


def sayings() -> set[str]:
    words = [*KNOWN, *(f"{reason}:{place}" for reason, count in PLACES.items() for place in range(count + 1)), "?"]
    return {ASKED.refusal(word) for word in words}


@given(
    word=st.text()
    | st.sampled_from(
        ["app\n", "app ", "APP", "metric", "app:0", "metric:-1", "metric:٣", "metric:1e3", "array:" + "9" * 40]
    )
    | st.builds("{}:{}".format, st.sampled_from(sorted(Reason)), st.integers())
)
def test_the_server_describes_refusals_in_its_own_words(word: str) -> None:
    assert ASKED.refusal(word) in sayings()


@pytest.mark.parametrize(
    "word", ["x\nCoterie: round 9: all is well", "metric:999999999", "\x1b[31m", "a" * 100_000, ""]
)
def test_a_node_that_lies_about_its_reason_neither_stops_the_run_nor_writes_into_the_log(
    word: str, caplog: pytest.LogCaptureFixture
) -> None:
    def lie(message: Message, answer: Callable[[Message], Message]) -> Message:
        if message.metadata.dst_node_id == 100 and message.metadata.group_id != "hello":
            return Message(Error(6, word), reply_to=message)
        return answer(message)

    grid = make_grid(make_app([private_mod]), 4, lie)
    kept = PrivateStrategy(FedAvg(**QUIET), deadline=2, colluders=0)
    kept.start(grid, initial_arrays(), 1, timeout=2)
    lines = [record.getMessage() for record in caplog.records]
    assert any("partition-0 leaves round 1" in line for line in lines)
    assert not any(word in line for line in lines if word)


VALUES = st.floats() | st.integers(-(2**62), 2**62)
ENTRIES = st.lists(st.floats(width=32), min_size=3, max_size=3)


@given(weight=VALUES, loss=VALUES, entries=ENTRIES, drop=st.sampled_from(["", "w", "b", "n", "loss"]))
def test_the_verdict_on_a_replys_structure_does_not_depend_on_values(
    weight: float, loss: float, entries: list[float], drop: str
) -> None:
    form = Form(RosterRecipe(weight="n", train_metrics=(Metric("loss", 0, 1),)), clients=4)

    def verdict(weight: float, loss: float, entries: list[float]) -> str:
        arrays = {"w": Array(np.array(entries, dtype=np.float32)), "b": Array(np.array(entries[0]))}
        metrics: dict[str, int | float | list[int] | list[float]] = {"n": weight, "loss": loss}
        reply = RecordDict(
            {
                "arrays": ArrayRecord({name: array for name, array in arrays.items() if name != drop}),
                "metrics": MetricRecord({name: value for name, value in metrics.items() if name != drop}),
            }
        )
        try:
            check_reply(form, RecordArrays(initial_arrays()), reply_of(reply))
        except ValueError as error:
            return str(getattr(error, "about", ""))
        return ""

    expected = {"": "", "w": "array:0", "b": "array:1", "n": "weight", "loss": "metric:0"}[drop]
    assert verdict(weight, loss, entries) == verdict(1, 0.5, [0.0] * 3) == expected


@pytest.mark.parametrize("metric", [float("nan"), float("inf"), 10**400])
@pytest.mark.parametrize("name", ["num-examples", "train_loss"])
def test_failures_that_depend_on_values_have_one_reason(name: str, metric: float) -> None:
    said: list[str] = []

    def listen(message: Message, answer: Callable[[Message], Message]) -> Message:
        reply = answer(message)
        if reply.has_error():
            said.append(str(reply.error.reason))
        return reply

    grid = replying(lambda arrays: records(arrays, {**METRICS, name: metric}))
    grid.deliver = listen
    PrivateStrategy(FedAvg(**QUIET), train_metrics=LOSS, deadline=2, empty_rounds=0).start(grid, initial_arrays(), 1)
    assert set(said) <= {"app"}
