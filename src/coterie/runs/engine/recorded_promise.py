"""The promise of a run that was recorded: read from its folder, for an audit.

A folder may come from anybody. So nothing is imported that its settings name, and files are read up to a limit.
"""

from pathlib import Path

from coterie.cohorts.policies import MultiRound
from coterie.cohorts.roster import Roster
from coterie.errors import ConfigError
from coterie.graphs.topology import is_complete
from coterie.runs.engine.protection import SessionShapes
from coterie.runs.records.promise import Promise, promise_for
from coterie.runs.sections.collusion import fewest_summed
from coterie.runs.sections.extensions import is_named
from coterie.runs.settings.config import RunConfig
from coterie.runs.settings.toml import load_recorded

_LARGEST = 64 << 20  # bytes of a roster, and of a configuration


def read_promise(folder: Path) -> Promise:
    """Return what the run in this folder promises; :class:`ConfigError` where its files do not tell."""
    for name in ("config.toml", "roster.msgpack"):
        file = folder / name
        if not file.is_file() or file.stat().st_size > _LARGEST:
            raise ConfigError(f"the folder has no {name} that can be read")
    config = load_recorded(folder / "config.toml")
    try:
        roster = Roster.from_bytes((folder / "roster.msgpack").read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read roster.msgpack: {error.strerror}") from None
    sizes = _session_sizes(config, roster)
    return promise_for(
        config, roster.privacy, sizes, sparse=not all(_complete(config, size, max(sizes)) for size in sizes)
    )


def _session_sizes(config: RunConfig, roster: Roster) -> set[int]:
    """Return the sizes of the smallest and the largest session; where a policy does not tell, what settings allow."""
    cohort, everybody = config.cohort, config.clients.count
    if cohort.policy != "multi-round":
        return {fewest_summed(config.aggregation, everybody, cohort.minimum, cohort.size), cohort.size}
    policy = MultiRound(roster.usable(), cohort.size, cohort.mode, survival=cohort.survival)
    minimum = fewest_summed(config.aggregation, everybody, cohort.minimum, policy.largest)
    return {min(max(minimum, policy.smallest), policy.largest), policy.largest}


def _complete(config: RunConfig, clients: int, most: int) -> bool:
    """Tell whether a session's graph is known to be complete; one of the user's own is not looked at."""
    if is_named(config.aggregation.topology):
        return False
    # The length of the vectors adds the same cost to every graph, so that it does not change which one is taken.
    shapes = SessionShapes(config.aggregation, config.clients.count, 1, most)
    return is_complete(shapes(clients).topology, clients)
