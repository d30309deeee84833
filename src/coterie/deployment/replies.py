"""The structure of an app's reply: it must fit the form, which is checked before any value is read.

The server learns what is missing, by its number in the server's message (:mod:`.reasons`), so the result must not
depend on data. Replies with the same names, types and shapes give the same result, independently of their values.
"""

from typing import Any

from numpy.typing import NDArray

from coterie.deployment.array_bytes import NUMBERS
from coterie.deployment.engine import AppReply, Arrays, Metrics
from coterie.deployment.form import Form
from coterie.deployment.logs import list_names
from coterie.deployment.reasons import Reason, word_with_place
from coterie.errors import InputError


def check_reply(form: Form, received: Arrays, reply: AppReply) -> None:
    """Refuse a reply with missing or extra parts, with an :class:`InputError` about the first of them."""
    if not _is_number(reply.metrics, form.recipe.weight):
        raise reply_error(Reason.WEIGHT, f"the reply must have a number {form.recipe.weight!r} among its metrics")
    for place, metric in enumerate(form.metrics):
        if not _is_number(reply.metrics, metric.name):
            missing = f"the reply must have a number {metric.name!r} among its metrics"
            raise reply_error(word_with_place(Reason.METRIC, place), missing)
    if not form.arrays:
        return
    for place, (name, array) in enumerate(received.items()):
        if name not in reply.arrays:
            raise reply_error(
                word_with_place(Reason.ARRAY, place), f"the reply lacks array {name!r}, which was received"
            )
        came = reply.arrays[name]
        if not _fits(array, came):
            what = f"{came.dtype} of shape {came.shape}"
            raise reply_error(word_with_place(Reason.SHAPE, place), f"array {name!r} came back as {what}")
    if extra := sorted(set(reply.arrays) - set(received)):
        raise reply_error(
            Reason.EXTRA,
            f"the reply has arrays that were not received, and they would be lost: {list_names(extra)}. Send them from "
            "the server first, or leave them out of the reply",
        )


def reply_error(about: str, what: str) -> InputError:
    """Return the error for an unusable reply, with the word that the server gets."""
    error = InputError(what)
    error.about = about
    return error


def _is_number(metrics: Metrics, name: str) -> bool:
    value = metrics.get(name)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fits(sent: NDArray[Any], came: NDArray[Any]) -> bool:
    return came.shape == sent.shape and came.dtype.kind in NUMBERS
