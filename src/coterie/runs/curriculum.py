"""The clients' local training as the settings describe it: steps, learning rate and its schedule."""

from coterie.runs.config import RunConfig
from coterie.runs.federation import Federation
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
            return Cosine(config.rounds, schedule.floor)
    return Milestones()
