"""A private strategy: an ordinary strategy that gets only weighted means from its grid.

    strategy = PrivateStrategy(FedAvg(...), privacy=2)
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=10)

A strategy that needs only a weighted mean runs unchanged, with its own ``start`` and its own state. A strategy that
uses individual replies is refused when it is wrapped, before anything is sent.
"""

import hashlib
import logging
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords

from coterie.cohorts.ledger import Ledger
from coterie.cohorts.roster import Roster
from coterie.deployment.aggregator import Aggregator
from coterie.deployment.checkpoint import CheckpointFile
from coterie.deployment.confinement import Confinement
from coterie.deployment.descent import Descent
from coterie.deployment.enrolment import Enrolment, enrol
from coterie.deployment.events import Observer
from coterie.deployment.home import server_home
from coterie.deployment.logs import LOGGER, join_log
from coterie.deployment.reasons import Asked
from coterie.deployment.recipe import ConfinedRecipe, check_confinable
from coterie.deployment.settings import PrivateSettings, read_clips, read_metrics, read_varying, threat_mode
from coterie.errors import ConfigError
from coterie.transports.flower.carrier import FlowerCarrier
from coterie.transports.flower.checkpoint import StrategyCheckpoint
from coterie.transports.flower.descent import DescentRounds
from coterie.transports.flower.grid import PrivateGrid
from coterie.transports.flower.recorder import EvaluateFunction, Recorder, new_progress, reconfigure
from coterie.transports.flower.records import FIRST, RecordArrays

join_log(logging.getLogger("flwr"))

_NEED_THE_MEAN = (flower.FedAvg, flower.FedAvgM, flower.FedAdagrad, flower.FedAdam, flower.FedYogi)
"""Strategies whose ``aggregate_train`` uses only the weighted mean of the replies."""

_REASONS: dict[type[flower.Strategy], str] = {
    flower.MultiKrum: "it compares single updates with each other",
    flower.Bulyan: "it compares single updates with each other",
    flower.FedMedian: "it needs the median of single updates",
    flower.FedTrimmedAvg: "it needs the extremes of single updates",
    flower.QFedAvg: "it weights each update by that client's loss",
    flower.FedXgbBagging: "it collects the trees of single clients",
    flower.FedXgbCyclic: "it sends the model from one client to the next",
}


class PrivateStrategy(flower.Strategy):
    """A Flower strategy under secure aggregation with multi-round privacy.

    The server keeps its history (ledger, rosters, checkpoints) in ``COTERIE_HOME``, a setting of its operator.
    """

    def __init__(
        self,
        strategy: flower.Strategy,
        *,
        privacy: int = PrivateSettings.privacy,
        cohort: int | None = PrivateSettings.cohort,
        minimum: int = PrivateSettings.minimum,
        mode: str = PrivateSettings.mode,
        protocol: str = PrivateSettings.protocol,
        colluders: int | None = PrivateSettings.colluders,
        deadline: float = PrivateSettings.deadline,
        grace: float = PrivateSettings.grace,
        empty_rounds: int = PrivateSettings.empty_rounds,
        clip: float = PrivateSettings.clip,
        clips: Mapping[str, float] | None = None,
        train_metrics: Mapping[str, tuple[float, float]] | None = None,
        evaluate_metrics: Mapping[str, tuple[float, float]] | None = None,
        most_examples: int | None = PrivateSettings.most_examples,
        precision: int = PrivateSettings.precision,
        varying: Iterable[str] = (),
        confined: Confinement | None = None,
        resume: bool = True,
        own_aggregation: bool = False,
        observer: Observer | None = None,
    ) -> None:
        """Wrap any strategy that needs only the weighted mean of all replies.

        With ``resume``, an interrupted run of this app continues; this is refused while another run of the app is
        alive. Without it, a run that runs beside another writes no checkpoint. The other arguments are the fields of
        :class:`~coterie.deployment.settings.PrivateSettings`, which explains each one and has the defaults; ``clips``
        and both metrics are mappings here.

        ``own_aggregation`` accepts a strategy with its own ``aggregate_train``. This method gets one reply, the mean
        over all clients. It may log or save it, but a computation over individual replies would be wrong. ``observer``
        is called with a :class:`~coterie.deployment.events.StepEvent` after each step and a
        :class:`~coterie.deployment.events.RoundEvent` after each round, for monitoring.
        """
        _check_strategy(strategy, own_aggregation=own_aggregation)
        self.strategy = strategy
        self._observer = observer
        self._resume = resume
        weight = str(getattr(strategy, "weighted_by_key", "num-examples"))
        self._settings = PrivateSettings(
            privacy=privacy,
            cohort=cohort,
            minimum=minimum,
            mode=threat_mode(mode),
            protocol=protocol,
            colluders=colluders,
            deadline=deadline,
            grace=grace,
            empty_rounds=empty_rounds,
            clip=clip,
            clips=read_clips(clips),
            train_metrics=read_metrics("train_metrics", train_metrics, weight),
            evaluate_metrics=read_metrics("evaluate_metrics", evaluate_metrics, weight),
            weight=weight,
            most_examples=most_examples,
            precision=precision,
            varying=read_varying(varying),
            confined=confined,
        )
        self.grid: PrivateGrid | None = None
        """The grid of the last :meth:`start`, with results and traffic."""

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFunction | None = None,
        **more: Any,  # noqa: ANN401 - a strategy's own start may take more than Flower's
    ) -> flower.Result:
        """Run the strategy's own ``start``; an interrupted run of the same app continues.

        With 0 rounds, nodes are enrolled and nothing is trained, so that the roster can be checked before any node
        trusts it.
        """
        home, strategy = server_home(), self.strategy
        if num_rounds < 1:
            return _report_roster(self._enrol(self._carrier(grid), home).roster, initial_arrays)
        begin = new_progress(initial_arrays, train_config, evaluate_config)
        held = CheckpointFile.hold(home / f"{_slug(grid)}.checkpoint", resume=self._resume)
        with held as file, ExitStack() as closing:
            checkpoint = StrategyCheckpoint(file)
            progress = (checkpoint.load(strategy, initial_arrays) if self._resume else None) or begin
            offset = progress.round
            if offset > num_rounds:
                LOGGER.warning(
                    "the interrupted run has done %s rounds, which is more than num_rounds = %s: its model is "
                    "returned unchanged, and its checkpoint stays",
                    offset,
                    num_rounds,
                )
                progress.result.arrays = progress.arrays
                return progress.result
            if offset:
                LOGGER.info("this app's last run was interrupted; it goes on after round %s", offset)
                reconfigure(progress, begin)
            recorder = Recorder(strategy, progress, checkpoint)
            descent = self._descend(file, initial_arrays, resume=bool(offset))
            if descent and not file.ours:
                closing.callback(descent.remove)  # even if this run fails, because no run can resume it
            with Ledger.open(home / "ledger.sqlite") as ledger, recorder:
                carrier = self._carrier(grid)
                enrolment = self._enrol(carrier, home)
                aggregator = Aggregator(carrier, enrolment, ledger, self._settings, FIRST, self._observer)
                if self._settings.cohort is None:
                    aggregator.log_outlook([len(circle) for circle in enrolment.roster.active])
                recipe = self._settings.recipe
                self.grid = PrivateGrid(
                    grid,
                    aggregator,
                    self._settings,
                    _count_wanted_nodes(strategy),
                    initial_arrays,
                    lambda: recorder.number,
                    DescentRounds(descent, recipe) if descent and isinstance(recipe, ConfinedRecipe) else None,
                )
                recorder.catch_up(self.grid, timeout)
                result = strategy.start(
                    self.grid,
                    progress.arrays,
                    num_rounds - offset,
                    timeout,
                    progress.train_config,
                    progress.evaluate_config,
                    recorder.with_continued_numbers(evaluate_fn),
                    **more,
                )
                aggregator.check_trained()
                self.grid.show(progress.arrays, timeout)
            if descent:
                descent.remove()
            file.remove()
            return recorder.complete_result(result)

    def _descend(self, file: CheckpointFile, arrays: ArrayRecord, *, resume: bool) -> Descent | None:
        """Continue the confined descent of an interrupted run, or begin one; None if models are not confined."""
        if self._settings.confined is None:
            return None
        check_confinable(RecordArrays(arrays))
        folder = file.path.with_suffix(".descent" if file.ours else f".{secrets.token_hex(8)}.descent")
        return Descent(folder, resume=resume)

    def _carrier(self, grid: Grid) -> FlowerCarrier:
        return FlowerCarrier(grid, patience=self._settings.deadline, grace=self._settings.grace)

    def _enrol(self, carrier: FlowerCarrier, home: Path) -> Enrolment:
        return enrol(carrier, home, self._settings, Asked(place=FIRST), _count_wanted_nodes(self.strategy))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the wrapped strategy has
        """Return an attribute of the wrapped strategy."""
        if name.startswith("_") or "strategy" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.strategy, name)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Call the method of the strategy, with a grid that protects replies."""
        self._check_outermost(grid)
        return self.strategy.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Call the method of the strategy."""
        return self.strategy.aggregate_train(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Call the method of the strategy, with a grid that protects replies."""
        self._check_outermost(grid)
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def _check_outermost(self, grid: Grid) -> None:
        if grid is not self.grid:
            raise ConfigError(
                "PrivateStrategy is not the outermost strategy: something around it, such as a differential-privacy "
                "wrapper, would send plain messages. Start the PrivateStrategy itself; for local noise put LocalDpMod "
                "after private_mod"
            )

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Call the method of the strategy."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """Call the method of the strategy."""
        self.strategy.summary()


def _report_roster(roster: Roster, arrays: ArrayRecord) -> flower.Result:
    """Log the current roster, and return the model unchanged."""
    LOGGER.info("no round is asked for, so nodes are enrolled and nothing is trained")
    LOGGER.info("nodes can be pinned to roster version %s: digest %s", roster.version, roster.digest.hex())
    return flower.Result(arrays=arrays)


def _check_strategy(strategy: object, *, own_aggregation: bool) -> None:
    """Refuse a strategy that cannot run under secure aggregation, with the reason in one line."""
    name = type(strategy).__name__
    if isinstance(strategy, type):
        raise ConfigError(
            f"{strategy.__name__} is a class; wrap an instance, as in PrivateStrategy({strategy.__name__}(...))"
        )
    if isinstance(strategy, PrivateStrategy):
        raise ConfigError("the strategy is a PrivateStrategy already; wrap it once")
    if any(kind.__module__.startswith("flwr.server.") for kind in type(strategy).__mro__):
        raise ConfigError(
            f"{name} is a strategy of Flower's old API (flwr.server.strategy); PrivateStrategy wraps those of the "
            "Message API (flwr.serverapp.strategy)"
        )
    if not isinstance(strategy, flower.Strategy):
        raise ConfigError(f"{name} is not a strategy of Flower's Message API (flwr.serverapp.strategy.Strategy)")
    own = type(strategy).aggregate_train
    if not any(own is kind.aggregate_train for kind in _NEED_THE_MEAN):
        known = next((reason for kind, reason in _REASONS.items() if isinstance(strategy, kind)), "")
        if known or type(strategy).__module__.startswith("flwr."):
            raise ConfigError(f"{name} cannot run under secure aggregation: {known or 'it looks at single replies'}")
        if not own_aggregation:
            raise ConfigError(
                f"{name} has its own aggregate_train, which may look at single replies; under secure aggregation "
                "there is one reply, the weighted mean. If it needs no more (it calls super().aggregate_train and "
                "saves or logs the result), pass own_aggregation=True"
            )
        LOGGER.warning("%s.aggregate_train gets one reply in a round, the weighted mean over all clients", name)
    functions = (getattr(strategy, f"{kind}_metrics_aggr_fn", None) for kind in ("train", "evaluate"))
    if any(function not in (None, aggregate_metricrecords) for function in functions):
        LOGGER.warning("the metrics function of %s sees one record, the mean over all clients", name)


def _count_wanted_nodes(strategy: flower.Strategy) -> int:
    """Return the number of nodes that a strategy wants to see."""
    names = ("min_available_nodes", "min_train_nodes", "min_evaluate_nodes")
    return max(int(getattr(strategy, name, 0)) for name in names)


def _slug(grid: Grid) -> str:
    """Return a readable and unique name for the files of a run's app."""
    app = getattr(grid.run, "fab_id", "") or ""
    readable = re.sub(r"[^A-Za-z0-9.-]+", "-", app)[:64] or "app"
    return f"{readable}-{hashlib.sha256(app.encode()).hexdigest()[:16]}"
