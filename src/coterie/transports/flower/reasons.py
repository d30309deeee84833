"""Reasons that a node gives when it does not answer, out of a fixed vocabulary, and what the server says about them.

The text of an exception may quote data, so it stays in the node's log. The server is sent one word of
:class:`Reason`, for some with a number that counts metrics or arrays which the server itself sent. A reason depends on
what the server asked for, on the operator's settings, or on the structure of the app's reply, never on a value in it:
whatever a value leads to is :attr:`Reason.APP`. On the server a word is looked up and never printed as it came.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from coterie.errors import CoterieError
from coterie.transports.flower.logs import shown

FIRST = "private_mod comes first, as in ClientApp(mods=[private_mod, ...])"
OUTSIDE = f"something around private_mod failed or refused: {FIRST}"


class Reason(StrEnum):
    """Why a node does not answer; the values are what is sent."""

    REFUSED = "refused"
    """Anything that has no word of its own."""
    PLAIN = "plain"
    """The message is no step of a session: a reply to it would not be protected."""
    KIND = "kind"
    """A request that this version of Coterie does not know."""
    SETTINGS = "settings"
    """The operator's settings, or files in the node's folder, cannot be used."""
    ROSTER = "roster"
    """The roster is not one that this node trusts."""
    FLOOR = "floor"
    """The terms of the session are below what the operator insists on."""
    FORM = "form"
    """The session does not fit the recipe of the roster that this node trusts."""
    CONFIGURATION = "configuration"
    """The task is not configured as it was the first time; that is fixed for a roster."""
    CONTENT = "content"
    """What was given to work on is not what the session is about."""
    SESSION = "session"
    """The message is none that this node answers at this point of the session."""
    APP = "app"
    """The app's function failed, or something in its reply cannot be encoded."""
    RECORDS = "records"
    """The app's reply has not exactly one ArrayRecord and one MetricRecord."""
    WEIGHT = "weight"
    """The app's reply lacks the number that it is weighted by."""
    METRIC = "metric"
    """The app's reply lacks a declared metric as a number; followed by its place in the form."""
    ARRAY = "array"
    """The app's reply lacks an array; followed by its place in the model that was sent."""
    SHAPE = "shape"
    """An array came back with another shape, or without numbers; followed by its place in the model."""


_LOG = "its own log says why"
_WORDS = {
    Reason.REFUSED: f"refused; {_LOG}",
    Reason.PLAIN: "refused a message that is no step of a session; coterie-allow of its operator lets some through",
    Reason.KIND: "does not know this kind of request: the server and the node need the same version of Coterie",
    Reason.SETTINGS: f"cannot use its settings, its key or its memory; {_LOG}",
    Reason.ROSTER: "does not trust the roster: its pin (coterie-roster), its members (coterie-members), or the roster "
    f"that it was shown before; {_LOG}",
    Reason.FLOOR: "insists on more than this session offers: compare mode, privacy, minimum and colluders with its "
    f"coterie-... settings; {_LOG}",
    Reason.FORM: "the session does not fit the recipe of the roster it trusts (weight, clips, metrics, precision)",
    Reason.CONFIGURATION: "was configured otherwise the first time, and that is for good: set it back, name what has "
    f"to change in PrivateStrategy(varying=...) of a new population, and see which key it is: {_LOG}",
    Reason.CONTENT: "was given something else to work on than the session is about: a mod around private_mod changed "
    f"it ({FIRST}), or its run has another configuration",
    Reason.SESSION: f"is not at this point of the session, or refused what others sent; {_LOG}",
    Reason.APP: f"its app failed, or replied with what cannot be averaged; {_LOG}",
    Reason.RECORDS: "its app must reply with exactly one ArrayRecord (none in evaluation) and one MetricRecord",
}
_CODES = {
    0: f"failed for an unknown reason; {_LOG}",
    1: f"cannot load its ClientApp: is coterie installed there? {_LOG}",
    2: f"{OUTSIDE}; and there must be a function for this type of message. {_LOG.capitalize()}",
    3: "its message was lost again and again",
    4: "its reply was lost again and again",
    5: "went away",
    7: f"did not accept the app's bundle; {_LOG}",
    8: f"its ClientApp crashed; {_LOG}",
}
_FORMAT = re.compile(r"([a-z]{1,16})(?::([0-9]{1,9}))?", re.ASCII)
_COUNTED = {Reason.METRIC, Reason.ARRAY, Reason.SHAPE}


def word_for(error: CoterieError) -> str:
    """Return what the server is told about an error: a word of the vocabulary, and no text of the error itself."""
    return error.about if _read(error.about) is not None else Reason.REFUSED


def counted(reason: Reason, place: int) -> str:
    """Return a reason that is about one of several metrics or arrays."""
    return f"{reason}:{place}"


@dataclass(frozen=True)
class Asked:
    """What the server asked for, by the names it uses itself: the reasons of nodes refer to it."""

    setting: str = "train_metrics"
    """Where the metrics are declared."""
    metrics: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ()
    weight: str = "num-examples"

    def refusal(self, word: object) -> str:
        """Say what the word of a node means; one that is not in the vocabulary does not come from the mod."""
        read = _read(word)
        if read is None:
            return OUTSIDE
        reason, place = read
        if reason is Reason.WEIGHT:
            return f"its reply lacks the number {shown(repr(self.weight))}, which replies are weighted by"
        if reason not in _COUNTED:
            return _WORDS[reason]
        names = self.metrics if reason is Reason.METRIC else self.arrays
        if place >= len(names):
            return "refused, and its reason is about something that it was not asked for"
        name = shown(repr(names[place]))
        if reason is Reason.METRIC:
            return f"its reply lacks the metric {name} as a number, which {self.setting} declares"
        if reason is Reason.ARRAY:
            return f"its reply lacks the array {name} of the model that it was sent"
        return f"its reply has the array {name} in another shape than it was sent, or not of numbers"


NOTHING = Asked()
"""What a question asks for that is about no metrics or arrays."""


def failure(code: int) -> str:
    """Say what one of Flower's own error codes means."""
    return f"{_CODES.get(code, f'failed; {_LOG}')} (Flower's error {code})"


def _read(word: object) -> tuple[Reason, int] | None:
    found = _FORMAT.fullmatch(word) if isinstance(word, str) else None
    if found is None or found[1] not in set(Reason):
        return None
    reason = Reason(found[1])
    if (found[2] is not None) != (reason in _COUNTED):
        return None
    return reason, int(found[2] or 0)
