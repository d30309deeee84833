"""Reasons why a node does not answer: a fixed vocabulary, and what the server logs for each word.

The text of an exception may quote data, so it stays in the node's log. The node sends one word of :class:`Reason`, for
some reasons with the number of a metric or array in the server's own message. A reason depends on the server's request,
on the operator's settings or on the structure of the app's reply, never on a value in it: every error that depends on a
value is :attr:`Reason.APP`. The server looks up a word and never prints the received text.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from coterie.errors import CoterieError
from coterie.reports.words import one_line


class Reason(StrEnum):
    """Why a node does not answer; the values are sent to the server."""

    REFUSED = "refused"
    """Any reason without its own word."""
    PLAIN = "plain"
    """The message is not a step of a session, so a reply would not be protected."""
    KIND = "kind"
    """A kind of request that this version of Coterie does not know."""
    SETTINGS = "settings"
    """The operator's settings, or files in the node's folder, cannot be used."""
    ROSTER = "roster"
    """This node does not trust the roster."""
    FLOOR = "floor"
    """The terms of the session are weaker than the operator accepts."""
    FORM = "form"
    """The session does not fit the recipe of the roster that this node trusts."""
    CONFIGURATION = "configuration"
    """The configuration of the task differs from the first one, which is permanent for a roster."""
    CONTENT = "content"
    """The records to work on are not those of the session."""
    SESSION = "session"
    """The message does not fit this point of the session."""
    BEHIND = "behind"
    """The node has missed models of a confined descent, and the request did not contain them."""
    CHAIN = "chain"
    """The node was shown other models of a confined descent before."""
    APP = "app"
    """The app's function failed, or something in its reply cannot be encoded."""
    RECORDS = "records"
    """The app's reply is not one model and one set of metrics."""
    WEIGHT = "weight"
    """The app's reply lacks the number that it is weighted by."""
    LOSS = "loss"
    """The app's reply lacks the loss that confined descent judges by."""
    METRIC = "metric"
    """The app's reply lacks a declared metric as a number; followed by its place in the form."""
    ARRAY = "array"
    """The app's reply lacks an array; followed by its place in the model that was sent."""
    EXTRA = "extra"
    """The app's reply has arrays that the model does not have."""
    SHAPE = "shape"
    """An array came back with another shape, or without numbers; followed by its place in the model."""


LOG = "its own log says why"
BEHIND = "has missed models of this descent, and is sent all of them the next time"
_WORDS = {
    Reason.REFUSED: f"refused; {LOG}",
    Reason.PLAIN: "refused a message that is not a step of a session; its operator can allow some with coterie-allow",
    Reason.KIND: "does not know this kind of request: the server and the node need the same version of Coterie",
    Reason.SETTINGS: f"cannot use its settings, its key or its memory; {LOG}",
    Reason.ROSTER: "does not trust the roster: its pin (coterie-roster), its members (coterie-members), or the roster "
    f"that it was shown before; {LOG}",
    Reason.FLOOR: "requires stricter terms than this session has: compare mode, privacy, minimum and colluders with "
    f"its coterie-... settings; {LOG}",
    Reason.FORM: "the session does not fit the recipe of the roster it trusts (weight, clips, metrics, precision)",
    Reason.CONFIGURATION: "was configured differently the first time, and that cannot change: set it back, or found "
    f"a new population whose setting 'varying' names the key; {LOG}",
    Reason.SESSION: f"is not at this point of the session, or refused what others sent; {LOG}",
    Reason.BEHIND: BEHIND,
    Reason.CHAIN: "was shown models that do not belong to this descent, and must not be summed with nodes that were "
    "not: begin a new descent with resume=False",
    Reason.LOSS: "its reply lacks the loss by which confined descent accepts moves, which "
    "confined=Confinement(loss=...) names",
    Reason.APP: f"its app failed, or its reply cannot be averaged; {LOG}",
    Reason.EXTRA: "its reply has arrays that the model it was sent does not have, and nothing would be done with them; "
    "its own log names them",
    Reason.RECORDS: "its app must reply with exactly one model (none in evaluation) and one set of metrics, in the "
    f"types of its engine; {LOG}",
}
_FORMAT = re.compile(r"([a-z]{1,16})(?::([0-9]{1,9}))?", re.ASCII)
_COUNTED = {Reason.METRIC, Reason.ARRAY, Reason.SHAPE}


def word_for(error: CoterieError) -> str:
    """Return the word for an error that the server gets, without the text of the error."""
    return error.about if _read(error.about) is not None else Reason.REFUSED


def word_with_place(reason: Reason, place: int) -> str:
    """Return a reason with the number of the metric or array that it is about."""
    return f"{reason}:{place}"


@dataclass(frozen=True)
class Asked:
    """The server's request, by the server's own names. The reasons of nodes refer to it."""

    setting: str = "train_metrics"
    """The setting that declares the metrics."""
    metrics: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ()
    weight: str = "num-examples"
    place: str = "Coterie comes first in it"
    """Where Coterie must be in an app, in the terms of its engine."""

    @property
    def outside(self) -> str:
        """The explanation for a node whose answer did not come from Coterie."""
        return f"something around Coterie failed or refused: {self.place}"

    def refusal(self, word: object) -> str:
        """Return the meaning of a node's word; a word outside the vocabulary does not come from Coterie."""
        read = _read(word)
        if read is None:
            return self.outside
        reason, place = read
        if reason is Reason.WEIGHT:
            return f"its reply lacks the number {one_line(repr(self.weight))}, which replies are weighted by"
        if reason is Reason.CONTENT:
            return (
                f"received other work than the session announces: something around Coterie changed it ({self.place}), "
                "or its run has another configuration"
            )
        if reason not in _COUNTED:
            return _WORDS[reason]
        names = self.metrics if reason is Reason.METRIC else self.arrays
        if place >= len(names):
            return "refused, with a reason about something that the server did not ask for"
        name = one_line(repr(names[place]))
        if reason is Reason.METRIC:
            return f"its reply lacks the metric {name} as a number, which {self.setting} declares"
        if reason is Reason.ARRAY:
            return f"its reply lacks the array {name} of the model that it was sent"
        return f"its reply has the array {name} in another shape than it was sent, or not of numbers"


NOTHING = Asked()
"""A request that has no metrics or arrays."""


def _read(word: object) -> tuple[Reason, int] | None:
    found = _FORMAT.fullmatch(word) if isinstance(word, str) else None
    if found is None or found[1] not in set(Reason):
        return None
    reason = Reason(found[1])
    if (found[2] is not None) != (reason in _COUNTED):
        return None
    return reason, int(found[2] or 0)
