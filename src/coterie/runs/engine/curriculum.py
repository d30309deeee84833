"""The clients' local training, built from the settings: steps, learning rate and its schedule."""

from coterie.runs.engine.federation import Federation
from coterie.runs.sections.common import CommonSettings
from coterie.training.local import LocalSGD
from coterie.training.schedules import Cosine, Curriculum, Inverse, Milestones, Schedule


def make_curriculum(config: CommonSettings, federation: Federation) -> Curriculum:
    """Return what every client trains on, and how."""
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


def make_schedule(config: CommonSettings) -> Schedule:
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
