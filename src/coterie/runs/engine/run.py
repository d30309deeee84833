"""A training run: rounds, one after the other, each on disk before the next begins.

A run is its folder. :meth:`TrainingRun.play` goes on from whatever the folder holds, be that nothing yet, a run that
was stopped, or one that was killed at any moment; the result is the same, bit for bit, but for times. That is because

* everything random but secrets comes from a stream named by purpose, round and client;
* a round changes nothing on disk but the ledger until it is over, and then metrics and checkpoint are written in this
  order, each whole or not at all;
* the round that a crash interrupted is played again, with new keys but with the same clients, updates, rounding and
  noise. The ledger, which may have recorded it, makes sure that no other sum is opened the second time.

On a sparse graph, whose edges depend on the keys, a repeated round can fail where the first attempt did not, or the
other way round: about as rarely as the graph was planned to fail.
"""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from coterie.errors import ConfigError
from coterie.files import write_file
from coterie.host import cores
from coterie.runs.engine.build import BuiltRun, build_run
from coterie.runs.engine.curriculum import with_schedule_length
from coterie.runs.engine.federation import Federation, find_federation, fingerprint
from coterie.runs.engine.loop import Engine
from coterie.runs.engine.notes import notes_before
from coterie.runs.records.record import RoundRecord
from coterie.runs.records.summary import Summary
from coterie.runs.report.forecasts import draw_forecasts, forecast_courses
from coterie.runs.report.observers import Journal, Observer, RunStart, trackers
from coterie.runs.report.page import run_page
from coterie.runs.settings.changes import check_changes, check_fingerprints
from coterie.runs.settings.config import RunConfig
from coterie.runs.settings.toml import parse_config, to_toml
from coterie.runs.storage.folder import RunFolder, checked_records, named_arrays
from coterie.runs.storage.lock import locked
from coterie.training.executors.vectorised import choose_executor
from coterie.training.models import parameter_count
from coterie.training.own import Module, named_state


@dataclass(frozen=True, eq=False)
class RunResult:
    """What a run leaves behind, besides its folder."""

    folder: Path
    summary: Summary
    records: tuple[RoundRecord, ...] = field(repr=False)
    models: dict[str, Module] = field(repr=False)
    """What was learnt: one model for all, ``global``, or for clients that trained alone one for each."""

    @property
    def model(self) -> Module:
        """The one model of all."""
        return self.models["global"]

    @property
    def accuracy(self) -> float | None:
        """The share of test examples that the model is right on, where they have labels."""
        return self.summary.accuracy

    @property
    def privacy(self) -> int:
        """T: fewer than so many clients can never be told apart, however many rounds there are; 1 promises nothing."""
        return self.summary.promised


class TrainingRun:
    """The run in a folder."""

    def __init__(self, folder: RunFolder, built: BuiltRun, observers: Sequence[Observer] = ()) -> None:
        """Take up the run; it was built from the folder's settings."""
        self.folder = folder
        self._built = built
        self._observers = [*observers, *trackers(built.config)]
        self._number = 0
        self._stopping = False

    @classmethod
    def begin(
        cls,
        path: Path | None,
        config: RunConfig,
        federation: Federation | None = None,
        observers: Sequence[Observer] = (),
    ) -> "TrainingRun":
        """Make the folder of a new run, by default a new one in ``runs``, unless something is wrong with settings."""
        if config.aggregation.collusion_of == "session":
            raise ConfigError(
                "aggregation.collusion_of: session is for runs that an earlier version began. In a new run "
                "aggregation.collusion is a share of all clients: set collusion_of to roster"
            )
        config = with_schedule_length(config)
        built = build_run(config, federation or find_federation(config))
        trackers(config)
        return cls(RunFolder.create(path, config), built, observers)

    @classmethod
    def open(
        cls,
        folder: RunFolder,
        federation: Federation | None = None,
        observers: Sequence[Observer] = (),
        changes: Sequence[str] = (),
    ) -> "TrainingRun":
        """Take up a run that was begun; ``federation`` must be the same again, by default what its settings name.

        ``changes`` are settings written ``section.key=value``; only some may change.
        """
        config = folder.config(changes)
        checkpoint = folder.checkpoint()
        settings = checkpoint.progress.settings if checkpoint is not None else ""
        # Checkpoints of older versions do not hold the settings; the file's stand for them.
        begun = with_schedule_length(parse_config(settings) if settings else folder.config())
        config = with_schedule_length(config, begun)
        if checkpoint is not None:
            check_changes(begun, config)
        built = build_run(config, federation or find_federation(config))
        if checkpoint is not None:
            check_fingerprints(checkpoint.progress.fingerprints, fingerprint(built.federation))
        if changes:
            write_file(folder.config_file, to_toml(config).encode())
        return cls(folder, built, observers)

    @property
    def config(self) -> RunConfig:
        """The settings of the run."""
        return self._built.config

    def stop(self) -> None:
        """Stop after the round that is being played."""
        self._stopping = True

    def play(self) -> RunResult:
        """Play the rounds that are left."""
        with ExitStack() as stack:
            for observer in self._observers:
                stack.callback(observer.close)
            return self._play()

    def _play(self) -> RunResult:
        with locked(self.folder.path):
            self.folder.clean()
            found = self.folder.checkpoint()
            records: list[RoundRecord] = []
            if found is None:
                self._settle_executor()
            else:
                self._built.strategy.restore(found.state)
                records = checked_records(self.folder.records(), found.progress.rounds, self.folder.metrics_file)
            head = found.progress.head if found else None
            engine = Engine(self._built, self.folder, records, head, self._step)
            with engine, closing(Journal(self.folder, records)) as journal:
                if found is None:
                    self.folder.save(engine.checkpoint(0))
                self._begin(records)
                for number in range(len(records) + 1, self.config.rounds + 1):
                    if self._stopping:
                        break
                    self._number = number
                    resuming = found is not None and number == found.progress.rounds + 1
                    record = engine.round(number, resuming=resuming)
                    journal.add(record)
                    self.folder.save(engine.checkpoint(number))
                    records.append(record)
                    for observer in self._observers:
                        observer.played(record)
                result = self._conclude(records)
        for observer in self._observers:
            observer.end(result.summary)
        return result

    def _settle_executor(self) -> None:
        """Measure which way of training is faster, if that was left open, and write the answer into the settings."""
        training = self.config.training
        if training.executor != "auto":
            return
        strategy = self._built.strategy
        tasks = [strategy.task(1, name) for name in strategy.clients[: self.config.cohort.size]]
        workers = training.workers if training.workers >= 0 else cores()
        choice = choose_executor(self._built.federation.problem, tasks, workers)
        settled = training.model_copy(update={"executor": choice.executor})
        self._built = replace(self._built, config=self.config.model_copy(update={"training": settled}))
        write_file(self.folder.config_file, to_toml(self.config).encode())

    def _begin(self, records: Sequence[RoundRecord]) -> None:
        clients = tuple(self._built.federation.parts)
        yardstick = self._built.yardstick
        start = RunStart(
            self.config,
            self.folder.path,
            clients,
            self._parameters,
            tuple(records),
            yardstick,
            self._built.promise,
            notes_before(self._built),
        )
        for observer in self._observers:
            observer.begin(start)

    def _step(self, step: str, done: int, asked: int) -> None:
        for observer in self._observers:
            observer.step(self._number, step, done, asked)

    def _conclude(self, records: Sequence[RoundRecord]) -> RunResult:
        built, problem = self._built, self._built.federation.problem
        models = {name: problem.instance(state) for name, state in built.strategy.models().items()}
        public = built.public_models()
        states = {name: named_state(models[name]) for name in public}
        write_file(self.folder.model_file, named_arrays(states))
        clients = tuple(built.federation.parts)
        summary = Summary.of(
            self.config,
            clients,
            self._parameters,
            records,
            promise=built.promise,
            protocol=" ".join(str(protection) for protection in built.protections),
            assumptions=built.config.algorithm.assumptions(built),
            yardstick=built.yardstick,
            notes=built.data_notes,
        )
        courses = [] if built.noisy else forecast_courses(built.federation, public)  # they show the clients' series
        if courses:
            draw_forecasts(self.folder.forecast_file, courses)
        page = run_page(summary, clients, records, self.folder.path.name, courses)
        write_file(self.folder.report_file, page.encode())
        return RunResult(self.folder.path, summary, tuple(records), models)

    @property
    def _parameters(self) -> int:
        return parameter_count(self._built.federation.problem.model)
