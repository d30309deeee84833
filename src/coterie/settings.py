"""Settings: each one is declared once, as a field with its type, default, bounds and help.

    @dataclass(frozen=True)
    class GuessSettings(Settings):
        '''Guess an update.'''

        tries: Annotated[int, Option("Number of guesses.", least=1)] = 3

Everything else is derived from the class. ``coterie.cli.derive`` makes a command-line option of each field that has an
:class:`Option`; :func:`read_table` reads a TOML table with the same names; and a value outside its bounds raises a
:class:`~coterie.errors.ConfigError` wherever it comes from. Fields without an :class:`Option` are set from Python and
TOML only. This module imports nothing heavy, so that ``coterie --help`` stays fast: keep settings classes apart from
the code that needs torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Annotated, Any, NamedTuple, Self, TypeVar, get_args, get_origin

from coterie.errors import ConfigError

# Larger than any session or machine allows: a larger number is a typing error, and is refused as one.
MOST_CLIENTS, MOST_LENGTH, MOST_WORKERS, MOST_TRIALS = 65_536, 1 << 28, 1_024, 1_000_000
MOST_SEED = 2**63 - 1
_SHOWN = 60  # characters of a value in an error


@dataclass(frozen=True)
class Option:
    """The help, bounds and option name of a field of a settings class."""

    help: str
    least: float | None = None
    most: float | None = None
    """Bounds of a number, or of each number in a tuple; the bounds themselves are allowed."""
    name: str = ""
    """The option's name if it differs from the field's, such as ``--lambda`` or ``--by-label/--at-random``."""
    metavar: str | None = None
    default: str | None = None
    """How the default is described if it depends on other settings; :meth:`Settings.of` then chooses the value."""
    commas: bool = False
    """Whether a tuple is written as one word with commas, ``4,10``; otherwise the option is repeated."""
    table: str = ""
    """A mapping whose keys are the choices, or a function that returns one, as ``module:name``; the help lists them."""
    values: Mapping[str, object] | None = None
    """The words for values on the command line, and the values they mean."""
    panel: str = ""
    """The heading under which the help shows the option, if it has its own."""
    hidden: bool = False
    """Whether the help leaves it out, as an old name that scripts still use."""


@dataclass(frozen=True)
class Settings:
    """Base class of settings; the docstring of a subclass is the help of its command."""

    def __post_init__(self) -> None:
        for setting in declared(type(self)):
            value = getattr(self, setting.name)
            for number in value if isinstance(value, tuple) else (value,):
                _check_number(setting, number)

    @classmethod
    def of(cls, **given: Any) -> Self:  # noqa: ANN401 - the fields of a subclass
        """Return settings with the values that a user gave; a subclass fills in defaults that depend on them."""
        return cls(**given)


S = TypeVar("S", bound=Settings)


class Setting(NamedTuple):
    """A field of a settings class that has an :class:`Option`."""

    name: str
    type: Any
    default: Any
    option: Option


def declared(settings: type[Settings]) -> list[Setting]:
    """Return the fields of a settings class that have an :class:`Option`."""
    found = []
    for field in fields(settings):
        if isinstance(field.type, str):
            raise TypeError(f"{settings.__module__} must not postpone annotations: its options would be lost")
        if get_origin(field.type) is Annotated:
            kind, *said = get_args(field.type)
            found += [Setting(field.name, kind, field.default, one) for one in said if isinstance(one, Option)]
    return found


def read_table(settings: type[S], table: Mapping[str, Any], where: str) -> S:
    """Return the settings that a TOML table gives; ``where`` names the table in an error."""
    import msgspec

    known: dict[str, Any] = {field.name: field.type for field in fields(settings)}
    if unknown := sorted(table.keys() - known):
        raise ConfigError(f"{where}: there is no setting {unknown[0]!r}; known are {', '.join(sorted(known))}")
    given = {}
    for name, value in table.items():
        try:
            given[name] = msgspec.convert(value, known[name])
        except msgspec.ValidationError as error:
            raise ConfigError(f"{where}: {name}: {error}") from None
    try:
        return settings.of(**given)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _check_number(setting: Setting, value: Any) -> None:  # noqa: ANN401 - whatever was given
    """Check the bounds of a setting that is a number or a tuple of numbers; other settings pass."""
    kinds = {setting.type, *get_args(setting.type)}
    if not kinds & {int, float} or (value is None and type(None) in kinds):
        return
    least, most, whole = setting.option.least, setting.option.most, int in kinds
    if most is None and whole and isinstance(value, int) and value > MOST_SEED:
        most = MOST_SEED
    check_number(setting.name, value, whole=whole, least=least, most=most)


def check_number(
    name: str,
    value: Any,  # noqa: ANN401 - whatever was given
    *,
    whole: bool = False,
    least: float | None = None,
    most: float | None = None,
) -> None:
    """Raise :class:`ConfigError` if a value is not a number (where needed, an integer), or outside its bounds."""
    number = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
    not_nan = value == value
    if number and not_nan and (least is None or least <= value) and (most is None or value <= most):
        return
    match least, most:
        case None, None:
            bounds = ""
        case _, None:
            bounds = f" of at least {least:,}"
        case None, _:
            bounds = f" of at most {most:,}"
        case _:
            bounds = f" from {least:,} to {most:,}"
    shown = repr(value)
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}..."
    raise ConfigError(f"{name} must be a {'whole ' if whole else ''}number{bounds}, not {shown}")


# Settings that several classes share.

Seed = Annotated[int, Option("Seed of every random choice.", least=0, most=MOST_SEED)]
Trials = Annotated[int, Option("Number of repetitions, each with another seed.", least=1, most=1000)]
DATASETS = "coterie.training.data.datasets:DATASETS"
DataName = Annotated[str, Option("Data set; digits comes with Coterie.", metavar="NAME", table=DATASETS)]
LabelledDataName = Annotated[str, Option("Data set with labels; digits comes with Coterie.", table=DATASETS)]
PicturesName = Annotated[
    str, Option("Data set of pictures; digits comes with Coterie.", metavar="NAME", table=DATASETS)
]
ModelName = Annotated[str, Option("Model of the clients.", metavar="NAME", table="coterie.training.models:MODELS")]
RoundDropout = Annotated[
    float,
    Option(
        "Probability that a client drops out inside a round. Above 0, circles are also tried without the rule that "
        "excludes a broken circle.",
        least=0,
        most=0.99,
    ),
]
DataDir = Annotated[
    str | None, Option("Folder of the data sets.", metavar="FOLDER", default="the variable COTERIE_DATA")
]
