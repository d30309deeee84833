"""The table of requests: the paths that the page may request, with their parameters and results.

Settings arrive as texts in the query. They are read by the same classes that declare their types and bounds
(:mod:`coterie.settings`), so a value outside is a :class:`~coterie.errors.ConfigError` with one clear line. Bodies are
bytes. No request names a file.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar, get_args
from urllib.parse import parse_qsl

from coterie.auditing.logs import FORMATS
from coterie.errors import CoterieError, ErrorText, InputError, Remedy
from coterie.explorer.audits import MOST_BYTES, AuditSettings, audit_content
from coterie.explorer.leaks import STORIES, LeakSettings, play_story
from coterie.explorer.people import LENGTH, NAMES, SIDE, pictures
from coterie.explorer.plans import PlanSettings, make_plan
from coterie.explorer.sessions import SessionSettings, encode_picture, play_session
from coterie.privacy.calibration import DELTA
from coterie.reports.words import printable
from coterie.settings import Settings, declared
from coterie.version import __version__

_MOST_FIELDS, _MOST_TEXT = 16, 200
_SWITCH = {"true": True, "1": True, "false": False, "0": False}

S = TypeVar("S", bound=Settings)

LABELS = {
    "clients": "Clients in all",
    "cohort": "Selected for a round",
    "privacy": "Clients in a circle",
    "absent": "Away when a round begins",
    "lost": "Lost during a round",
    "collusion": "Work with the server",
    "rounds": "Rounds of training",
    "epsilon": "Epsilon over all rounds",
    "active": "The server may lie",
    "format": "Format",
    "round_column": "Round column",
    "client_column": "Client column",
    "where": "Rows that count",
    "encoding": "Encoding",
    "keep_order": "Keep order",
    "as_written": "As written",
}
"""The names of settings on the page, which errors use too."""

PANELS: dict[str, type[Settings]] = {
    "leak": LeakSettings,
    "plan": PlanSettings,
    "audit": AuditSettings,
    "session": SessionSettings,
}
"""The settings of each view of the page."""


@dataclass(frozen=True)
class Request:
    """A path that the page may request."""

    answer: Callable[[str, bytes], dict[str, Any]]
    """Takes the query and the body."""
    method: str = "GET"
    most_bytes: int = 0
    """The largest body."""


def describe(_query: str = "", _body: bytes = b"") -> dict[str, Any]:
    """Return the data that the page needs first: people, stories, and the settings with their bounds."""
    return {
        "version": __version__,
        "people": [
            {"name": name, "picture": encode_picture(picture)} for name, picture in zip(NAMES, pictures(), strict=True)
        ],
        "side": SIDE,
        "length": LENGTH,
        "delta": DELTA,
        "most_bytes": MOST_BYTES,
        "formats": [row.name for row in FORMATS if not row.has_head],
        "stories": [
            {"name": name, **asdict(story), "circles": story.circles, "holds": story.holds}
            for name, story in STORIES.items()
        ],
        "settings": {panel: describe_settings(kind) for panel, kind in PANELS.items()},
    }


def describe_settings(kind: type[Settings]) -> dict[str, Any]:
    """Return for each setting its help, default and bounds."""
    return {
        setting.name: {
            "label": LABELS.get(setting.name, ""),
            "help": setting.option.help,
            "default": setting.default,
            "least": setting.option.least,
            "most": setting.option.most,
            "kind": setting.type.__name__,
        }
        for setting in declared(kind)
    }


def read_query(kind: type[S], query: str) -> S:
    """Return the settings in a query; :class:`InputError` for unknown ones."""
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=_MOST_FIELDS, errors="strict"
        )
    except ValueError as error:
        raise InputError(f"the address cannot be read: {error}") from None
    known = {setting.name: setting.type for setting in declared(kind)}
    given: dict[str, Any] = {}
    for name, text in pairs:
        if name not in known or name in given:
            raise InputError(f"there is no setting {printable(name)!r} here, or it is there twice")
        given[name] = _value(name, known[name], text)
    return kind.of(**given)


def explain(error: CoterieError) -> str:
    """Return the text of an error, with the page's names in place of the library's parameters."""
    text = error.text.spelled(_spell) if isinstance(error.text, ErrorText) else str(error)
    return printable(text, 1000)


def _spell(remedy: Remedy) -> str:
    if remedy.parameter == "limit" and remedy.value is None:
        return "coterie audit --limit MB"  # the page's own limit is fixed
    words = LABELS.get(remedy.parameter, remedy.parameter.replace("_", " "))
    if remedy.mention or remedy.value is None:
        return f"“{words}”"
    match remedy.value:
        case True:
            return f"“{words}”"
        case dict() as conditions:
            rows = ", ".join(f"{column}={value}" for column, values in conditions.items() for value in values)
            return f"“{words}” {rows}"
        case value:
            return f"“{words}” {value}"


def _value(name: str, kind: Any, text: str) -> Any:  # noqa: ANN401 - one of a few types
    """Return a text as a value of a setting's type; bounds are checked by the settings themselves."""
    kinds = {kind, *get_args(kind)}
    if len(text) > _MOST_TEXT:
        raise InputError(f"{name} has at most {_MOST_TEXT} characters, not {len(text):,}")
    if bool in kinds:
        if text not in _SWITCH:
            raise InputError(f"{name} is true or false, not {printable(text)!r}")
        return _SWITCH[text]
    for number in (int, float):
        if number in kinds:
            try:
                return number(text) if text.isascii() else number("")
            except ValueError:
                raise InputError(f"{name} is a number, not {printable(text)!r}") from None
    return text


REQUESTS: Mapping[str, Request] = {
    "/api/about": Request(describe),
    "/api/leak": Request(lambda query, _body: play_story(read_query(LeakSettings, query))),
    "/api/plan": Request(lambda query, _body: make_plan(read_query(PlanSettings, query))),
    "/api/session": Request(lambda query, _body: play_session(read_query(SessionSettings, query))),
    "/api/audit": Request(
        lambda query, body: audit_content(read_query(AuditSettings, query), body), "POST", MOST_BYTES
    ),
}
"""Every request that is computed, by its path."""
