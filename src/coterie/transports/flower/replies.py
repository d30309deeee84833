"""The structure of an app's reply: whether it has what a form needs, before any value in it is looked at.

What is missing is told to the server by its place in what the server sent (:mod:`.reasons`), so it must not depend on
data. Two replies with the same names, types and shapes get the same verdict here, whatever their values are.
"""

import numpy as np
from flwr.app import Array, MetricRecord, RecordDict

from coterie.errors import InputError
from coterie.transports.flower.form import Form
from coterie.transports.flower.reasons import Reason, counted


def check_reply(form: Form, received: RecordDict, reply: RecordDict) -> None:
    """Refuse a reply that lacks something, with an :class:`InputError` about the first thing that is missing."""
    if len(reply.metric_records) != 1 or (form.arrays and len(reply.array_records) != 1):
        raise _lacking(Reason.RECORDS, "the reply needs exactly one ArrayRecord and one MetricRecord")
    measured = next(iter(reply.metric_records.values()))
    if not _is_number(measured, form.recipe.weight):
        raise _lacking(Reason.WEIGHT, f"the reply must have a number {form.recipe.weight!r} in its MetricRecord")
    for place, metric in enumerate(form.metrics):
        if not _is_number(measured, metric.name):
            missing = f"the reply must have a number {metric.name!r} in its MetricRecord"
            raise _lacking(counted(Reason.METRIC, place), missing)
    if not form.arrays:
        return
    sent, model = next(iter(received.array_records.values())), next(iter(reply.array_records.values()))
    for place, (name, array) in enumerate(sent.items()):
        if name not in model:
            raise _lacking(counted(Reason.ARRAY, place), f"the reply lacks array {name!r}, which was received")
        if not _fits(array, model[name]):
            came = f"{model[name].dtype} of shape {tuple(model[name].shape)}"
            raise _lacking(counted(Reason.SHAPE, place), f"array {name!r} came back as {came}")


def _is_number(record: MetricRecord, name: str) -> bool:
    value = record.get(name)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fits(sent: Array, came: Array) -> bool:
    try:
        kind = np.dtype(came.dtype).kind
    except TypeError:  # a type that numpy does not know
        return False
    return tuple(came.shape) == tuple(sent.shape) and kind in "fiu"  # floating-point numbers and integers


def _lacking(about: str, what: str) -> InputError:
    error = InputError(what)
    error.about = about
    return error
