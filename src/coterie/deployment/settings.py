"""The server's settings for all rounds of a run, checked before anything is sent."""

import contextlib
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeVar

from msgspec import structs

from coterie.deployment.confinement import Confinement
from coterie.deployment.recipe import STATISTICS, VARYING, ConfinedRecipe, Metric, RosterRecipe, to_metrics
from coterie.errors import ConfigError
from coterie.secagg.protocols import AUTO, PROTOCOLS
from coterie.secagg.terms import ThreatMode
from coterie.settings import Option, Settings

T = TypeVar("T")

MOST_EXAMPLES = 10_000
"""The largest weight of a roster, if it is not set and not all nodes announce theirs."""
MOST_ANNOUNCED = 20
"""The most binary digits of a weight that a node announces and the server believes: 1,048,575 examples."""
LONGEST = 24 * 3600.0
"""The upper limit of seconds for a step, and for a node to come back."""


@dataclass(frozen=True, kw_only=True)
class PrivateSettings(Settings):
    """The settings of a private deployment; a :class:`ConfigError` names the one that cannot work."""

    privacy: Annotated[
        int,
        Option(
            "T. Every combination of the sums of any number of rounds and runs is about whole groups of at least T "
            "clients. It is fixed when the roster is founded.",
            least=1,
        ),
    ] = 2
    cohort: Annotated[int | None, Option("Clients in a round, in whole circles.", default="all that are connected")] = (
        None
    )
    minimum: Annotated[int, Option("The smallest number of clients in a sum.", least=2)] = 2
    mode: Annotated[
        ThreatMode,
        Option(
            "`active-server` protects against a malicious server, `honest-but-curious` against one that follows the "
            "protocol.",
        ),
    ] = ThreatMode.ACTIVE_SERVER
    protocol: Annotated[
        str,
        Option(
            "How a sum is made: `two-trips` (three if many nodes leave), `papers` (five trips, or four in the mode "
            "`honest-but-curious`), or `auto`, which uses two trips while they are cheap enough.",
        ),
    ] = AUTO
    colluders: Annotated[
        int | None,
        Option(
            "Clients that may collude with a malicious server.",
            least=0,
            default="the largest number with which one node may leave, just under a third at most",
        ),
    ] = None
    deadline: Annotated[
        float, Option("Seconds for each step except training, which has the `timeout` of `start`.", most=LONGEST)
    ] = 120.0
    grace: Annotated[
        float,
        Option(
            "Seconds to wait for a node that is reported gone before its step continues without it; never longer than "
            "the step itself.",
            least=0,
            most=LONGEST,
        ),
    ] = 30.0  # a node starts in five to ten seconds, more on a busy machine
    empty_rounds: Annotated[
        int,
        Option(
            "The run ends after this many training rounds in a row without a result, with `NothingTrained` and the "
            "reasons; so does a run in which no round had a result. 1 ends it at once, 0 never. The checkpoint stays, "
            "and the next run continues from it.",
            least=0,
        ),
    ] = 3
    clip: Annotated[
        float,
        Option("How far an entry of the model may move in a round; larger moves are clipped.", least=1e-30, most=1e30),
    ] = 1.0
    clips: Annotated[
        tuple[tuple[str, float], ...],
        Option('The same for some arrays, by patterns of their names, such as `{"*.running_var": 10.0}`.'),
    ] = ()
    train_metrics: Annotated[
        tuple[Metric, ...],
        Option(
            'Metrics of training that are averaged, with their ranges: `{"train_loss": (0, 10)}`. Other metrics '
            "never leave their node."
        ),
    ] = ()
    evaluate_metrics: Annotated[
        tuple[Metric, ...], Option("The same for evaluation, which is off unless some are declared.")
    ] = ()
    weight: str = "num-examples"
    """The metric that replies are weighted by: ``weighted_by_key`` of the strategy."""
    most_examples: Annotated[
        int | None,
        Option(
            "The largest weight of a client; a client with more examples counts for this number. A smaller one keeps "
            "more precision. It is fixed when the roster is founded.",
            least=1,
            default="`10000`, or by the weights that all nodes announce",
        ),
    ] = None
    precision: Annotated[int, Option("Bits of an entry, at full weight.", least=2)] = 24
    varying: Annotated[
        tuple[str, ...],
        Option(
            'Configuration keys that may change from round to round and from run to run, such as `("lr",)`; all others '
            "stay as they were when a node first took part. The server, even a malicious one, chooses these values."
        ),
    ] = ()
    confined: Annotated[
        Confinement | None,
        Option(
            "Nodes train models of their own by confined descent ([below](#models-that-stay-on-their-nodes)), with "
            "these settings.",
            default="none: all nodes train the server's model",
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        least = max(self.privacy, self.minimum)
        if self.cohort is not None and self.cohort < least:
            raise ConfigError(f"cohort must be a whole number of at least {least}, not {self.cohort!r}")
        if self._most_examples > self.largest_scale:
            raise ConfigError(
                f"most_examples must be at most {self.largest_scale} with a precision of {self.precision} bits"
            )
        if self.deadline <= 0:
            raise ConfigError(f"deadline must be a number of seconds above 0, not {self.deadline!r}")
        if self.protocol not in PROTOCOLS:
            raise ConfigError(f"protocol is one of {', '.join(PROTOCOLS)}, not {self.protocol!r}")
        for name, clip in self.clips:
            if not _within(clip, 1e-30, 1e30):
                raise ConfigError(f"clips[{name!r}] must be a number from 1e-30 to 1e30, not {clip!r}")
        if not _is_text(self.weight):
            raise ConfigError(f"{self.weight!r} cannot be the name of what replies are weighted by")
        if self.confined is not None and not isinstance(self.confined, Confinement):
            raise ConfigError(f"confined is a Confinement(...), not {self.confined!r}")
        _ = self.recipe

    @property
    def recipe(self) -> RosterRecipe:
        """The recipe of contributions, which is permanent for a roster."""
        recipe = RosterRecipe(
            weight=self.weight,
            most_weight=self._most_examples,
            precision=self.precision,
            clip=self.clip,
            clips=self.clips + STATISTICS,
            train_metrics=self.train_metrics,
            evaluate_metrics=self.evaluate_metrics,
            varying=self.varying + VARYING,
        )
        if self.confined is None:
            return recipe
        return ConfinedRecipe(**structs.asdict(recipe), confinement=self.confined)

    @property
    def largest_scale(self) -> int:
        """The largest weight that the precision allows."""
        return (1 << (self.precision - 1)) - 1

    def recipe_for(self, announced: Collection[int | None]) -> RosterRecipe:
        """Return the recipe of a new roster whose nodes announce weights with this many binary digits.

        The largest weight of a recipe is its scale: a node with 1/8 of it has 3 bits less precision, and larger weights
        are limited to it. If all nodes announce their weights, the scale is the largest number with this many digits.
        Larger announcements than :data:`MOST_ANNOUNCED` are ignored, because one would cost all others precision.
        """
        if self.most_examples is not None:
            return self.recipe
        known = [min(bits, self.precision - 1) for bits in announced if bits is not None and bits <= MOST_ANNOUNCED]
        largest = max(1, (1 << max(known, default=0)) - 1)
        all_known = bool(known) and len(known) == len(announced)
        return structs.replace(self.recipe, most_weight=largest if all_known else max(largest, self._most_examples))

    def check_kept(self, founded: RosterRecipe) -> None:
        """Refuse these settings if the roster was founded with others; an unset scale is taken from the roster."""
        asked = self.recipe
        if self.most_examples is None:
            asked = structs.replace(asked, most_weight=founded.most_weight)
        founded.check_kept(asked)

    @property
    def _most_examples(self) -> int:
        return MOST_EXAMPLES if self.most_examples is None else self.most_examples


def read_settings(given: Mapping[str, Any], weight: str) -> PrivateSettings:
    """Return settings that come from a file: modes by their names, metrics and clips as mappings, lists for tuples.

    ``weight`` is the name of what replies are weighted by, which the engine decides.
    """
    known = sorted({field.name for field in fields(PrivateSettings)} - {"weight", "confined"})
    if unknown := sorted(given.keys() - set(known)):
        raise ConfigError(f"{unknown[0]}: no such setting; there are {', '.join(known)}")
    checked: dict[str, Any] = dict(given)
    if "mode" in given:
        checked["mode"] = threat_mode(given["mode"])
    if "clips" in given:
        checked["clips"] = read_clips(given["clips"])
    if "varying" in given:
        checked["varying"] = read_varying(given["varying"])
    for name in {"train_metrics", "evaluate_metrics"} & given.keys():
        checked[name] = read_metrics(name, given[name], weight)
    return PrivateSettings(weight=weight, **checked)


def threat_mode(mode: str) -> ThreatMode:
    """Return the mode of this name."""
    try:
        return ThreatMode(mode)
    except ValueError:
        raise ConfigError(f"mode is one of {', '.join(ThreatMode)}, not {mode!r}") from None


def read_clips(clips: Mapping[str, float] | None) -> tuple[tuple[str, float], ...]:
    """Return the ranges of some arrays by patterns of their names, in the order in which they are tried."""
    listed = tuple(_mapping("clips", clips).items())
    for name, _ in listed:
        if not _is_text(name):
            raise ConfigError(f"clips: {name!r} cannot be a pattern of names")
    return listed


def read_metrics(setting: str, ranges: Mapping[str, tuple[float, float]] | None, weight: str) -> tuple[Metric, ...]:
    """Return the metrics that a setting declares, after checking their names and ranges."""
    listed = _mapping(setting, ranges)
    for name, bounds in listed.items():
        if not _is_text(name) or name == weight:
            raise ConfigError(f"{setting}: {name!r} cannot be the name of a metric that is averaged")
        if not _is_range(bounds):
            raise ConfigError(
                f"{setting}: {name!r} needs a range (low, high) of numbers with others in between, not {bounds!r}"
            )
    return to_metrics(listed)


def read_varying(names: Iterable[str]) -> tuple[str, ...]:
    """Return the keys of configurations that may differ between sessions."""
    listed = (names,) if isinstance(names, str) or not isinstance(names, Iterable) else tuple(names)
    if isinstance(names, str) or not all(map(_is_text, listed)):
        raise ConfigError(f"varying is a collection of names of configuration keys, not {names!r}")
    return listed


def _mapping(setting: str, given: Mapping[str, T] | None) -> Mapping[str, T]:
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(f"{setting} is a mapping of names, not {given!r}")
    return given or {}


def _is_text(name: object) -> bool:
    """Return whether this is text that can be sent."""
    if isinstance(name, str):
        with contextlib.suppress(UnicodeEncodeError):
            name.encode()
            return True
    return False


def _within(value: object, least: float, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def _is_range(bounds: object) -> bool:
    """Return whether these are two numbers with others in between."""
    most = sys.float_info.max
    if not isinstance(bounds, tuple | list) or len(bounds) != 2 or not all(_within(end, -most, most) for end in bounds):
        return False
    return Metric("", *map(float, bounds)).usable
