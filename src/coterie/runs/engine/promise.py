"""The promise of a run, computed: from its parts before it is played, or from its folder for an audit."""

from collections.abc import Collection
from pathlib import Path

from coterie.auditing.logs.run_folders import read_progress
from coterie.cohorts.policies import POLICIES, Policy, largest_cohort
from coterie.cohorts.roster import Roster
from coterie.errors import ConfigError, InputError
from coterie.runs.algorithms import algorithm_of
from coterie.runs.engine.cohorts import Cohorts
from coterie.runs.engine.protection import SessionShapes
from coterie.runs.records.promise import Promise
from coterie.runs.sections.checks import policy_settings
from coterie.runs.sections.collusion import drawn_circles, fewest_summed, promised_colluders
from coterie.runs.sections.extensions import is_named
from coterie.runs.settings.changes import forbidden_changes
from coterie.runs.settings.config import RunConfig, with_schedule_length
from coterie.runs.settings.toml import load_recorded, parse_config

_LARGEST = 64 << 20  # bytes of a roster, and of a configuration


def make_promise(config: RunConfig, cohorts: Cohorts | None) -> Promise:
    """Return the promise of a run with these circles, this policy and these sessions."""
    if cohorts is None or config.aggregation.kind == "plain":
        return Promise(clients=config.clients.count)
    sizes = {
        size
        for protection in cohorts.protections
        for size in (
            min(_smallest_cohort(cohorts.policy, protection.session.minimum), protection.most),
            protection.most,
        )
    }
    shapes = [protection.shapes for protection in cohorts.protections]
    sparse = any(shape.sparse(size) for shape in shapes for size in sizes)
    planned = all(shape.planned for shape in shapes)
    return promise_for(config, cohorts.circles.privacy, sizes, sparse=sparse, planned=planned)


def promise_for(config: RunConfig, circle: int, sizes: Collection[int], *, sparse: bool, planned: bool) -> Promise:
    """Return the promise of a run from the size of its smallest circle and the ``sizes`` of its sessions."""
    aggregation = config.aggregation
    return Promise(
        circle=circle,
        colluders=promised_colluders(aggregation, config.cohort, config.clients.count, circle, sizes),
        clients=config.clients.count,
        active=aggregation.threat == "active-server",
        sparse=sparse,
        planned=planned,
        drawn=drawn_circles(config.cohort) and aggregation.collusion_of == "roster",
        varying=algorithm_of(config).varies(config),
    )


def _smallest_cohort(policy: Policy, minimum: int) -> int:
    """Return the fewest clients that a policy selects for a round: ``minimum``, unless the policy declares more."""
    return max(minimum, int(getattr(policy, "smallest", minimum)))


def read_promise(folder: Path) -> Promise:
    """Return the promise of the run in this folder; :class:`ConfigError` if it cannot be read from the files.

    Settings that differ from those of the checkpoint raise :class:`InputError`. The folder is not trusted: modules that
    its settings name are not imported, and files are read up to a limit.
    """
    for name in ("config.toml", "roster.msgpack"):
        file = folder / name
        if not file.is_file() or file.stat().st_size > _LARGEST:
            raise ConfigError(f"the folder has no {name} that can be read")
    config = _recorded_settings(folder)
    try:
        roster = Roster.from_bytes((folder / "roster.msgpack").read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read roster.msgpack: {error.strerror}") from None
    sizes = _session_sizes(config, roster)
    shapes = _session_shapes(config, roster, max(sizes))
    sparse = shapes is None or any(shapes.sparse(size) for size in sizes)
    planned = shapes is not None and shapes.planned
    return promise_for(config, roster.privacy, sizes, sparse=sparse, planned=planned)


def _recorded_settings(folder: Path) -> RunConfig:
    """Return the settings in a folder; if there is a checkpoint, they must equal the settings in it."""
    config, progress = load_recorded(folder / "config.toml"), read_progress(folder)
    if progress is None or not progress.settings:
        return config
    try:
        begun = parse_config(progress.settings)
    except ValueError as error:
        raise InputError(f"the settings in checkpoint.safetensors cannot be read: {error}") from error
    if changes := forbidden_changes(with_schedule_length(begun), with_schedule_length(config, begun)):
        raise InputError(f"config.toml is not that of the run, which began under other settings: {changes}")
    return config


def _session_sizes(config: RunConfig, roster: Roster) -> set[int]:
    """Return the smallest and the largest size of sessions; for a policy of the user, what the settings allow."""
    cohort, population = config.cohort, config.clients.count
    kind = POLICIES.get(cohort.policy)
    if kind is None or not kind.keeps_circles:
        return {fewest_summed(config.aggregation, population, cohort.minimum, cohort.size), cohort.size}
    policy = kind.build(roster.usable(), policy_settings(config.clients, cohort))
    most = largest_cohort(policy, population)
    minimum = fewest_summed(config.aggregation, population, cohort.minimum, most)
    return {min(_smallest_cohort(policy, minimum), most), most}


def _session_shapes(config: RunConfig, roster: Roster, most: int) -> SessionShapes | None:
    """Return the shapes of sessions; None for a topology of the user, which is not imported."""
    if is_named(config.aggregation.topology):
        return None
    circles = [len(circle) for circle in roster.circles] or [1]
    # The length of the vectors adds the same cost to every graph, so it does not change the choice.
    return SessionShapes(config.aggregation, config.clients.count, 1, most, circles)
