"""Experiments of declarations, and contexts for their jobs: a folder, and when to stop."""

from pathlib import Path
from typing import Any, TypeVar

from coterie.reproduce.declarations import FULL, Declaration, declared, read_declaration
from coterie.reproduce.experiment import Experiment, JobContext

E = TypeVar("E", bound=Experiment[Any])
CONTEXT = JobContext(Path("unused"), None, lambda: False)


def experiment_of(kind: type[E], declaration: Declaration | str, size: str = FULL) -> E:
    """Return the experiment of a declaration, or of the shipped one of that name; it must be of this kind."""
    if isinstance(declaration, str):
        declaration = read_declaration(declared()[declaration])
    experiment = declaration.experiment(size)
    assert isinstance(experiment, kind)
    return experiment


def context(folder: Path, most: int = 10**6) -> JobContext:
    """Return a context that stops a job when it has asked ``most`` times."""
    asked = iter(range(most))
    return JobContext(folder, None, lambda: next(asked, None) is None)
