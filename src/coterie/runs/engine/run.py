"""A training run: one round after another, each on disk before the next begins.

The state of a run is in its folder. :meth:`TrainingRun.play` continues from that state: a new run, one that was
interrupted, or one that was killed at any moment. The result is the same, bit for bit, except times. This works because

* everything random, except secrets, comes from a stream named by purpose, round and client;
* until a round is over, it changes only the ledger on disk; then metrics and checkpoint are written in this order, each
  as a whole or not at all;
* a round that a crash interrupted is repeated, with new keys but with the same clients, updates, rounding and noise. If
  the ledger has recorded the round, it ensures that no other sum is opened the second time.

On a sparse graph, whose edges depend on the keys, a repeated round can fail although the first attempt did not, or
succeed although it did. This is about as rare as the planned failure of the graph.

An observer may end a run early. The checkpoint then has its :class:`~coterie.runs.records.record.Stop`, and a resumed
run plays no further round, unless the settings that the decision depends on were changed, or ``ignore_stop`` is set.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from coterie.auditing.auditor import Auditor
from coterie.errors import ConfigError
from coterie.files import write_file
from coterie.host import cores
from coterie.locks import locked
from coterie.runs.algorithms import algorithm_of
from coterie.runs.engine.build import BuiltRun, build_run
from coterie.runs.engine.calibration import build_calibrated
from coterie.runs.engine.client_scores import score_clients
from coterie.runs.engine.federation import Federation, find_federation
from coterie.runs.engine.forecasts import forecast_courses
from coterie.runs.engine.loop import Engine
from coterie.runs.engine.notes import notes_before
from coterie.runs.engine.stopping import early_stopping
from coterie.runs.records.record import RoundRecord, Stop
from coterie.runs.records.summary import Summary
from coterie.runs.report.forecasts import draw_forecasts
from coterie.runs.report.notebook import run_html
from coterie.runs.report.observers import Observer, ObserverGroup, RunStart
from coterie.runs.report.page import run_page
from coterie.runs.report.trackers import make_trackers
from coterie.runs.report.words import headline_of, in_words
from coterie.runs.sections.extensions import check_no_code, check_origin
from coterie.runs.settings.changes import check_changes, check_fingerprints
from coterie.runs.settings.config import RunConfig, with_schedule_length
from coterie.runs.settings.names import names_of_user
from coterie.runs.settings.toml import parse_config, to_toml
from coterie.runs.storage.folder import Journal, Progress, RunFolder, checked_records, named_arrays
from coterie.training.executors.vectorised import choose_executor
from coterie.training.keyword_model import user_model
from coterie.training.models import parameter_count
from coterie.training.user_models import Module, named_state


@dataclass(frozen=True, eq=False)
class RunResult:
    """The result of a run, besides its folder."""

    folder: Path
    summary: Summary = field(repr=False)
    records: tuple[RoundRecord, ...] = field(repr=False)
    models: dict[str, Module] = field(repr=False)
    """The trained models by name: ``global`` for all clients, or one for each client, or both."""

    @property
    def model(self) -> Module:
        """The common model; :class:`ConfigError` if the algorithm has none."""
        config = self.summary.config
        algorithm = algorithm_of(config)
        if algorithm.personal and "global" not in algorithm.aside:
            raise ConfigError(f"{config.training.algorithm} training has no common model; see models")
        return self.models["global"]

    @property
    def accuracy(self) -> float | None:
        """The share of test examples that the model classifies correctly, if they have labels."""
        return self.summary.accuracy

    @property
    def privacy(self) -> int:
        """T: every combination of all sums is about at least this many clients together; 1 promises nothing."""
        return self.summary.promised

    def __str__(self) -> str:
        words = [*in_words(self.summary), ("Report", f"{self.folder}/report.html")]
        return "\n".join([f"{headline_of(self.summary)}.", *(f"{topic}: {text}" for topic, text in words)])

    def _repr_html_(self) -> str:
        return run_html(self.summary, self.records, self.folder)


class TrainingRun:
    """The run in a folder."""

    def __init__(
        self, folder: RunFolder, built: BuiltRun, observers: Sequence[Observer] = (), *, ignore_stop: bool = False
    ) -> None:
        """Prepare the run, which was built from the folder's settings; :func:`all_observers` makes the observers."""
        self.folder = folder
        self._built = built
        self._observer = ObserverGroup(observers)
        self._ignore_stop = ignore_stop
        self._interrupted = False
        self._records: list[RoundRecord] = []

    @classmethod
    def begin(
        cls,
        path: Path | None,
        config: RunConfig,
        federation: Federation | None = None,
        observers: Sequence[Observer] = (),
    ) -> "TrainingRun":
        """Check the settings, and make the folder of a new run, by default in ``runs``."""
        if config.aggregation.collusion_of == "session":
            raise ConfigError(
                "aggregation.collusion_of: session is for runs that an earlier version began. In a new run "
                "aggregation.collusion is a share of all clients: set collusion_of to roster"
            )
        if config.aggregation.dropout_of == "session":
            raise ConfigError(
                "aggregation.dropout_of: session is for runs that an earlier version began. In a new run "
                "aggregation.dropout is a probability of each client: set dropout_of to client"
            )
        config = with_schedule_length(config)
        if path is not None:
            _check_origins(config, path)
        built = build_calibrated(config, federation or find_federation(config))
        observers = all_observers(built, observers)  # before there is a folder
        return cls(RunFolder.create(path, built.config), built, observers)

    @classmethod
    def open(
        cls,
        folder: RunFolder,
        federation: Federation | None = None,
        observers: Sequence[Observer] = (),
        changes: Sequence[str] = (),
        *,
        ignore_stop: bool = False,
    ) -> "TrainingRun":
        """Resume a run; ``federation`` must be the same as before; by default it is built from the settings.

        ``changes`` are settings written ``section.key=value``; only some may change. With ``ignore_stop``, the run
        continues although an observer ended it.
        """
        folder.check_entries()
        config = folder.config(changes)
        _check_origins(config, folder.path)
        checkpoint = folder.checkpoint()
        begun = _settings_of(checkpoint.progress, folder) if checkpoint else with_schedule_length(folder.config())
        config = with_schedule_length(config, begun)
        if checkpoint is not None:
            check_changes(begun, config)
        build = build_run if checkpoint else build_calibrated  # with a checkpoint, its settings decide the noise
        built = build(config, federation or find_federation(config))
        if checkpoint is not None:
            check_fingerprints(checkpoint.progress.fingerprints, built.federation.fingerprints)
        observers = all_observers(built, observers)
        if changes:
            write_file(folder.config_file, to_toml(config).encode())
        return cls(folder, built, observers, ignore_stop=ignore_stop)

    @property
    def config(self) -> RunConfig:
        """The settings of the run."""
        return self._built.config

    @property
    def played(self) -> int:
        """The number of rounds that are over."""
        return len(self._records)

    def stop(self) -> None:
        """Interrupt the run after the round in progress; a resumed run continues."""
        self._interrupted = True

    def play(self) -> RunResult:
        """Play the remaining rounds."""
        with closing(self._observer):
            result = self._play()
            self._observer.end(result.summary)
            return result

    def _play(self) -> RunResult:
        with locked(self.folder.path):
            self.folder.clean()
            self.folder.check_entries()  # again: loading takes time, and now no other process of ours writes here
            _check_origins(self.config, self.folder.path)
            found = self.folder.checkpoint()
            if found is None:
                self._settle_executor()
            else:
                self._built.strategy.restore(found.state)
                rounds, metrics = found.progress.rounds, self.folder.metrics_file
                self._records = checked_records(self.folder.records(), rounds, metrics)
            records, progress = self._records, found.progress if found else None
            engine = Engine(self._built, self.folder, records, progress, self._step)
            with engine, closing(Journal(self.folder, records)) as journal:
                if found is None:
                    engine.save(0)
                stop = self._begin(records, progress)
                if stop is None:
                    stop = engine.run(
                        records,
                        journal,
                        self._observer,
                        resuming=found is not None,
                        interrupted=lambda: self._interrupted,
                    )
                elif found is None or stop != found.progress.stop:
                    engine.save(len(records), stop)
                return self._conclude(records, stop, engine.auditor)

    def _begin(self, records: Sequence[RoundRecord], progress: Progress | None) -> Stop | None:
        """Call the observers; if the run has ended early, return the reason."""
        recorded = None if self._ignore_stop else self._recorded_stop(progress)
        start = RunStart(
            self.config,
            self.folder.path,
            tuple(self._built.federation.parts),
            self._parameters,
            tuple(records),
            self._built.yardstick,
            self._built.promise,
            notes_before(self._built),
            recorded.reason if recorded else "",
        )
        stop = self._observer.begin(start)
        return None if self._ignore_stop else recorded or stop

    def _recorded_stop(self, progress: Progress | None) -> Stop | None:
        """Return the stop in a checkpoint, unless the section of the settings that it depends on was changed."""
        stop = progress.stop if progress else None
        if progress is None or stop is None or not stop.section:
            return stop
        before = _settings_of(progress, self.folder)
        changed = getattr(before, stop.section, None) != getattr(self.config, stop.section, None)
        return None if changed else stop

    def _step(self, step: str, done: int, asked: int) -> None:
        self._observer.step(len(self._records) + 1, step, done, asked)

    def _settle_executor(self) -> None:
        """If the executor is ``auto``, measure which way of training is faster, and write it into the settings."""
        training = self.config.training
        if training.executor != "auto":
            return
        strategy = self._built.strategy
        tasks = [strategy.task(1, name) for name in strategy.clients[: self.config.cohort.size]]
        workers = training.workers if training.workers >= 0 else cores()
        choice = choose_executor(self._built.federation.problem, tasks, workers)
        fixed = training.model_copy(update={"executor": choice.executor})
        self._built = replace(self._built, config=self.config.model_copy(update={"training": fixed}))
        write_file(self.folder.config_file, to_toml(self.config).encode())

    def _conclude(self, records: Sequence[RoundRecord], stop: Stop | None, auditor: Auditor) -> RunResult:
        """Save the models and the page."""
        built, problem = self._built, self._built.federation.problem
        models = {name: user_model(problem.instance(state)) for name, state in built.strategy.models().items()}
        public = built.public_models()
        states = {name: named_state(models[name]) for name in public}
        write_file(self.folder.model_file, named_arrays(states))
        clients = tuple(built.federation.parts)
        summary = replace(
            Summary.of(self.config, clients, self._parameters, records),
            promise=built.promise,
            protocol=" ".join(filter(None, (*map(str, built.protections), built.algorithm.protocol))),
            assumptions=built.assumptions,
            sigma=built.sigma,
            noise_shares=built.noise_shares,
            yardstick=built.yardstick,
            notes=built.data_notes,
            stopped=stop.reason if stop else "",
            client_scores=score_clients(built),
        )
        if summary.client_scores:
            write_file(self.folder.scores_file, summary.client_scores.table().encode())
        courses = [] if built.noisy else forecast_courses(built.federation, public)  # they show the clients' series
        if courses:
            draw_forecasts(self.folder.forecast_file, courses)
        page = run_page(summary, clients, records, self.folder.path.name, courses, auditor)
        write_file(self.folder.report_file, page.encode())
        return RunResult(self.folder.path, summary, tuple(records), models)

    @property
    def _parameters(self) -> int:
        return parameter_count(self._built.federation.problem.model)


def all_observers(built: BuiltRun, observers: Sequence[Observer]) -> list[Observer]:
    """Return the caller's observers and those of the settings; raise an error if one cannot work."""
    return [*observers, *make_trackers(built.config.tracking), *early_stopping(built)]


def _check_origins(config: RunConfig, folder: Path) -> None:
    """Refuse settings that name a function or class in the folder of the run itself, or could import one there."""
    named = list(names_of_user(config))
    for key, text in named:
        check_origin(key, text, folder)
    if named:
        check_no_code(folder)


def _settings_of(progress: Progress, folder: RunFolder) -> RunConfig:
    """Return the settings in a checkpoint; for older checkpoints, which have none, those of the folder."""
    return with_schedule_length(parse_config(progress.settings) if progress.settings else folder.config())
