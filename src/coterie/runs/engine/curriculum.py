"""The clients' local training as the settings describe it: steps, learning rate and its schedule."""

from coterie.runs.engine.federation import Federation
from coterie.runs.settings.config import RunConfig
from coterie.training.local import LocalSGD
from coterie.training.schedules import Cosine, Curriculum, Inverse, Milestones, Schedule


def make_curriculum(config: RunConfig, federation: Federation) -> Curriculum:
    """Say what every client trains on, and how."""
    training = config.training
    work = LocalSGD(
        training.learning_rate,
        training.epochs,
        training.batch_size,
        training.momentum,
        training.weight_decay,
        training.shuffle,
    )
    return Curriculum(federation.parts, work, config.seed, make_schedule(config))


def make_schedule(config: RunConfig) -> Schedule:
    """Return how the learning rate changes."""
    schedule = config.training.schedule
    match schedule.kind:
        case "milestones":
            return Milestones(schedule.milestones, schedule.factor)
        case "inverse":
            return Inverse(schedule.decay)
        case "cosine":
            return Cosine(schedule.rounds or config.rounds, schedule.floor)
    return Milestones()


def with_schedule_length(config: RunConfig, begun: RunConfig | None = None) -> RunConfig:
    """Fix for how many rounds schedules are made: those that the run begins with, or ``begun`` with."""
    schedule = config.training.schedule
    if schedule.rounds:
        return config
    begun = begun or config
    settled = schedule.model_copy(update={"rounds": begun.training.schedule.rounds or begun.rounds})
    return config.model_copy(update={"training": config.training.model_copy(update={"schedule": settled})})


def schedule_notes(config: RunConfig) -> tuple[str, ...]:
    """Say before training where a cosine and the rounds to be played do not end together."""
    schedule, training = config.training.schedule, config.training
    length = schedule.rounds
    if schedule.kind != "cosine" or not length or length == config.rounds:
        return ()
    last = training.learning_rate * make_schedule(config)(config.rounds)
    if length < config.rounds:
        return (
            f"The learning rate falls until round {length:,} and stays at {last:.3g} in the rounds after it: "
            "training.schedule.rounds is fixed when a run begins",
        )
    return (f"The learning rate falls until round {length:,}; with {config.rounds:,} rounds it ends at {last:.3g}",)
