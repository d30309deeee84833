import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid, strategy
from flwr.serverapp.strategy import FedAvg
from tests.support.flower import initial_arrays, make_app, make_grid
from tests.support.flower_strategies import MEANS, QUIET, fresh, private_grid

from coterie.cohorts import Ledger
from coterie.cohorts.outcome import Outcome
from coterie.deployment.engine import AppReply
from coterie.deployment.form import Form
from coterie.deployment.recipe import Metric, RosterRecipe
from coterie.errors import ConfigError, LocalProtocolError
from coterie.transports.flower import PrivateStrategy
from coterie.transports.flower.exchange import Exchange, Reply


class Curious(FedAvg):
    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        return super().aggregate_train(server_round, replies)


@pytest.mark.parametrize("kind", MEANS, ids=lambda kind: type(kind).__name__)
def test_a_strategy_that_needs_only_the_mean_gives_the_same_model(kind: strategy.Strategy) -> None:
    plain = fresh(kind).start(make_grid(make_app(), 4), initial_arrays(), num_rounds=2)
    kept = PrivateStrategy(fresh(kind), train_metrics={"train_loss": (0, 8)}).start(private_grid(), initial_arrays(), 2)
    for name, array in plain.arrays.items():
        assert np.allclose(kept.arrays[name].numpy(), array.numpy(), atol=6e-4)
        assert kept.arrays[name].numpy().dtype == array.numpy().dtype
    for number, metrics in plain.train_metrics_clientapp.items():
        assert kept.train_metrics_clientapp[number]["train_loss"] == pytest.approx(metrics["train_loss"], abs=1e-3)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (strategy.Krum(), "Krum .* compares single updates"),
        (strategy.MultiKrum(), "compares"),
        (strategy.Bulyan(), "compares"),
        (strategy.FedMedian(), "median"),
        (strategy.FedTrimmedAvg(), "extremes"),
        (strategy.QFedAvg(1.0), "loss"),
        (strategy.FedXgbBagging(), "trees"),
        (strategy.DifferentialPrivacyClientSideFixedClipping(FedAvg(), 1.0, 1.0, 2), "single replies"),
        (Curious(), "Curious .* own aggregate_train"),
    ],
)
def test_a_strategy_that_needs_more_is_refused_by_name_before_anything_is_sent(
    kind: strategy.Strategy, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        PrivateStrategy(kind)


def test_metrics_functions_of_the_user_cause_a_note_that_they_see_one_record(log: pytest.LogCaptureFixture) -> None:
    PrivateStrategy(FedAvg(train_metrics_aggr_fn=lambda _records, _key: MetricRecord()))
    assert "sees one record" in log.text


def test_a_strategy_that_wants_more_nodes_than_there_are_does_not_wait_for_ever() -> None:
    result = PrivateStrategy(FedAvg(min_available_nodes=50, **QUIET), deadline=1).start(
        private_grid(), initial_arrays(), 1
    )
    assert result.arrays


def test_no_reply_of_a_single_client_reaches_the_strategy() -> None:
    seen: list[list[Message]] = []

    class Watching(FedAvg):
        def _check_and_log_replies(
            self, replies: Iterable[Message], is_train: bool, validate: bool = True
        ) -> tuple[list[Message], list[Message]]:
            seen.append(list(replies))
            return super()._check_and_log_replies(seen[-1], is_train, validate)

    PrivateStrategy(Watching(**QUIET)).start(private_grid(), initial_arrays(), 1)
    ((reply,),) = [replies for replies in seen if replies]
    assert reply.content.metric_records["metrics"]["num-examples"] == 10 + 20 + 30 + 40


def test_different_messages_for_different_clients_are_refused() -> None:
    class Choosy(FedAvg):
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            for node in grid.get_node_ids():
                yield Message(RecordDict({"arrays": arrays, "config": ConfigRecord({"lr": node})}), node, "train")

    with pytest.raises(ConfigError, match="different messages"):
        PrivateStrategy(Choosy(**QUIET)).start(private_grid(), initial_arrays(), 1)


def test_evaluation_is_off_unless_its_metrics_are_declared() -> None:
    grid = private_grid()
    result = PrivateStrategy(FedAvg()).start(grid, initial_arrays(), 1)
    assert not result.evaluate_metrics_clientapp
    assert {message.metadata.message_type for message in grid.sent} == {"train"}


def test_evaluation_in_a_separate_session_gives_the_mean() -> None:
    result = PrivateStrategy(FedAvg(), evaluate_metrics={"accuracy": (0, 1)}).start(private_grid(), initial_arrays(), 1)
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(0.15, abs=1e-3)


def test_messages_cannot_bypass_the_rounds() -> None:
    kept = PrivateStrategy(FedAvg(**QUIET))
    kept.start(private_grid(), initial_arrays(), 1)
    assert kept.grid is not None
    with pytest.raises(LocalProtocolError):
        kept.grid.push_messages([])
    with pytest.raises(ConfigError, match="query"):
        kept.grid.send_and_receive([Message(RecordDict(), 100, "query")])


@pytest.mark.parametrize(
    ("protocol", "mode", "trips"),
    [
        ("auto", "active-server", 2),
        ("auto", "honest-but-curious", 2),
        ("papers", "active-server", 5),
        ("papers", "honest-but-curious", 4),
    ],
)
def test_a_round_takes_two_trips_or_by_the_papers_protocol_five_or_four(protocol: str, mode: str, trips: int) -> None:
    for run in range(2):
        grid = private_grid(config={"coterie-mode": mode})
        PrivateStrategy(FedAvg(**QUIET), mode=mode, protocol=protocol).start(grid, initial_arrays(), 2)
        hellos = 1 if run or protocol == "papers" else 2  # in the first run, nodes get the roster before a round
        assert len(grid.sent) == 4 * hellos + 2 * 4 * trips


WRONG: dict[str, list[object]] = {
    "mode": ["kind", ""],
    "protocol": ["five", "", None],
    "privacy": [0, -1, 2.5, 2.0, math.nan, True, "2"],
    "cohort": [0, -1, 1, 4.0, math.nan, True],
    "minimum": [1, 0, -1, 2.0, True],
    "colluders": [-1, 0.5, math.nan, False],
    "deadline": [0, -1, math.nan, math.inf, True, "60"],
    "grace": [-1, math.nan, math.inf, True],
    "empty_rounds": [-1, 1.5, True, "3"],
    "clip": [-1, 0, math.nan, math.inf, True],
    "clips": [
        {"*.bias": -1},
        {"*.bias": math.nan},
        {1: 1.0},
        {None: 1.0},
        {b"w": 1.0},
        {"\ud800": 1.0},
        [],
        ["w"],
        "w",
    ],
    "most_examples": [0, 2.5, True, 2**23, 2**40, 2**64, 10**30],
    "precision": [0, 99, 24.0, True],
    "varying": ["lr", 1, None, (1,), ("\ud800",)],
}
WRONG_METRICS: list[object] = [
    *({"loss": bounds} for bounds in [(1, 0), (1, 1), (math.nan, 1), (0, math.nan), (0, math.inf), (0, 10**400)]),
    *({"loss": bounds} for bounds in [(0,), 1, (-1e308, 1e308), (False, True), ("0", "1")]),
    {"num-examples": (0, 1)},
    *({"loss": bounds} for bounds in [(0, 5e-324), (1.0, math.nextafter(1.0, 2))]),
    *({name: (0, 1)} for name in [1, None, b"loss", "\ud800"]),
    *([], ["loss"], "loss"),
]
WRONG |= {f"{kind}_metrics": list(WRONG_METRICS) for kind in ("train", "evaluate")}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_settings_that_cannot_work_are_refused_at_once_and_by_name(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"^{name}.*$"):
        PrivateStrategy(FedAvg(), **{name: value})  # type: ignore[arg-type]


def test_a_weight_that_cannot_be_sent_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="weighted by"):
        PrivateStrategy(FedAvg(weighted_by_key="\ud800"))


def test_a_clip_may_be_a_whole_number() -> None:
    result = PrivateStrategy(FedAvg(**QUIET), clip=2, clips={"w": 10}).start(private_grid(), initial_arrays(), 1)
    assert list(result.train_metrics_clientapp) == [1]  # no node refused it


def test_most_examples_may_be_as_large_as_the_precision_allows() -> None:
    assert PrivateStrategy(FedAvg(), precision=24, most_examples=2**23 - 1)


@pytest.mark.parametrize("scale", [1e-323, 1e-300, 1e307])
def test_a_metric_of_any_size_has_its_mean(scale: float) -> None:
    metric = Metric("loss", 8 * scale, 16 * scale)
    form = Form(RosterRecipe(evaluate_metrics=(metric,), precision=40), clients=2, arrays=False)
    reply = AppReply({}, {"loss": 14 * scale, "num-examples": 10})
    vector = form.encode(form.scale({}, reply), 10, np.random.default_rng(1))
    decoded = form.quantizer.decode(vector, form.layout({}), 1)
    assert decoded.mean[-1][0] == pytest.approx(0.5, abs=1e-2)


def test_a_cohort_that_no_circle_fits_into_or_that_is_never_summed_is_refused_at_once() -> None:
    for privacy, minimum in (4, 2), (2, 4):
        with pytest.raises(ConfigError, match="cohort must be a whole number of at least 4"):
            PrivateStrategy(FedAvg(), cohort=3, privacy=privacy, minimum=minimum)


def test_a_metric_called_like_the_weight_of_the_strategy_is_refused() -> None:
    with pytest.raises(ConfigError, match="train_metrics: 'batches'"):
        PrivateStrategy(FedAvg(weighted_by_key="batches"), train_metrics={"batches": (0, 1)})


def test_a_strategy_that_polls_for_nodes_is_shown_a_bounded_number() -> None:
    looks: list[int] = []

    class Restless(FedAvg):
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            looks.extend(len(list(grid.get_node_ids())) for _ in range(40))
            return super().configure_train(server_round, arrays, config, grid)

    PrivateStrategy(Restless(**QUIET)).start(private_grid(), initial_arrays(), 1)
    assert looks[:4] == [4, 4, 8, 16]
    assert looks[-1] == 1 << 16


def test_every_step_has_the_grace_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    graces: list[float] = []

    class Watched(Exchange):
        def ask(self, requests: Mapping[int, RecordDict], seconds: float) -> Iterator[Reply]:
            graces.append(self.grace)
            return super().ask(requests, seconds)

    monkeypatch.setattr("coterie.transports.flower.carrier.Exchange", Watched)
    PrivateStrategy(FedAvg(**QUIET), grace=90).start(private_grid(), initial_arrays(), 1)
    assert graces == [90] * 4  # two hellos in the first run, and two steps


def test_the_history_continues_over_runs(home: Path) -> None:
    for _ in range(2):
        PrivateStrategy(FedAvg(**QUIET)).start(private_grid(), initial_arrays(), 2)
    with Ledger.inspect(home / "server" / "ledger.sqlite") as ledger:
        assert list(ledger.outcomes().values()) == [Outcome.COMPLETED] * 4
