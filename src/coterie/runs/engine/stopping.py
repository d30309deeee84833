"""Early stopping: an observer that ends a run when its quality no longer improves."""

from coterie.errors import ConfigError
from coterie.runs.engine.build import BuiltRun
from coterie.runs.records.record import RoundRecord, Stop
from coterie.runs.records.yardstick import Yardstick
from coterie.runs.report.observers import Observer, RunStart
from coterie.runs.sections.common import StoppingSettings
from coterie.training.metrics import metric_form


class EarlyStopping(Observer):
    """Ends a run after ``patience`` rounds without an improvement of the metric.

    The decision follows from the settings and the records alone. So a run that was interrupted stops after the same
    round as one that was not.
    """

    def __init__(self, settings: StoppingSettings, yardstick: Yardstick) -> None:
        self._settings, metric = settings, settings.metric
        self._name, self._column, self._rising = "training loss", "train_loss", False
        if metric == "quality":
            self._name, self._column, self._rising = yardstick.name, yardstick.column, yardstick.share
        elif metric != "train_loss":
            form = metric_form(metric)
            self._name, self._column, self._rising = form.title, form.column, form.larger
        self._best: float | None = None
        self._best_round = 0

    def begin(self, start: RunStart) -> Stop | None:
        """Apply the rule to the rounds that were played before."""
        self._best, self._best_round = None, 0
        stop = None
        for record in start.records:
            stop = self.after_round(record)
        return stop

    def after_round(self, record: RoundRecord) -> Stop | None:
        """Apply the rule after a round; a round without the metric changes nothing."""
        settings = self._settings
        value: float | None = getattr(record, self._column)
        if value is None:
            return None
        rising = self._rising
        gain = None if self._best is None else value - self._best if rising else self._best - value
        if gain is None or gain > settings.min_improvement:
            self._best, self._best_round = value, record.round
        if record.round - self._best_round < settings.patience:
            return None
        return Stop(
            f"The {self._name} has not improved since round {self._best_round:,}, for {settings.patience:,} rounds "
            "(stopping.patience)",
            section="stopping",
        )


def early_stopping(built: BuiltRun) -> list[Observer]:
    """Return the rule of the settings, if there is one; refuse a metric that the run does not record."""
    settings = built.config.stopping
    if not settings.patience:
        return []
    if settings.metric == "train_loss" and built.noisy:
        raise ConfigError("stopping.metric: a run with noise does not record the training loss; use quality")
    if settings.metric not in ("quality", "train_loss", *built.config.training.metrics):
        raise ConfigError(f"stopping.metric: {settings.metric} is not recorded; add it to training.metrics")
    on_tests = settings.metric != "train_loss"
    if on_tests and not built.has_tests:
        raise ConfigError(
            f"stopping.metric: there are no test examples to measure {settings.metric} on; "
            + ("with noise, those of clients are not used; give a test_set" if built.noisy else "use train_loss")
        )
    if on_tests and built.noisy and built.algorithm.personal:
        raise ConfigError(
            "stopping.patience: must be 0: a run with noise does not record the quality of the clients' own models"
        )
    return [EarlyStopping(settings, built.yardstick)]
