"""The table of the clients' scores: order, means and the file."""

import csv
import dataclasses
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.runs.records.client_scores import OWN_MODEL, Basis, ClientScore, ClientScores, mean_in_table
from coterie.runs.records.yardstick import ACCURACY, LOSS

VALUES = st.none() | st.floats(0, 1)


@st.composite
def scores(draw: st.DrawFn) -> ClientScores:
    names = draw(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), min_size=1, unique=True))
    rows = [
        ClientScore(
            name, 3, 2, {model: {"loss": draw(VALUES), "accuracy": draw(VALUES)} for model in ("own", "global")}
        )
        for name in names
    ]
    return ClientScores(Basis.TESTS, draw(st.sampled_from(["own", "global"])), rows, len(rows))


@given(scores())
def test_the_worst_come_first_and_clients_without_a_score_are_left_out(found: ClientScores) -> None:
    for yardstick, column in ((ACCURACY, "accuracy"), (LOSS, "loss")):
        known = {row.client: row.values[found.model][column] for row in found.rows}
        ranked = found.ranked(yardstick)
        assert dict(ranked) == {client: value for client, value in known.items() if value is not None}
        values = [value for _, value in ranked]
        assert values == sorted(values, reverse=not yardstick.share)
        mean = found.mean(yardstick)
        assert (mean is None) == (not values)
        if mean is not None:
            assert mean == pytest.approx(sum(values) / len(values))
    assert found.personal == (found.model == OWN_MODEL)


@given(scores())
def test_the_file_has_a_row_for_each_client_with_all_digits(found: ClientScores) -> None:
    rows = list(csv.DictReader(io.StringIO(found.table(), newline="")))
    assert [row["client"] for row in rows] == [row.client for row in found.rows]
    for written, row in zip(rows, found.rows, strict=True):
        assert (written["train_examples"], written["test_examples"]) == ("3", "2")
        for model, values in row.values.items():
            for name, value in values.items():
                assert written[f"{model}_{name}"] == ("" if value is None else str(value))


@given(scores())
def test_the_file_has_the_mean_of_the_first_model(found: ClientScores) -> None:
    first = dataclasses.replace(found, model="own")
    for yardstick, name in ((ACCURACY, "accuracy"), (LOSS, "loss")):
        mean = first.mean(yardstick)
        assert mean_in_table(found.table(), name) == (None if mean is None else pytest.approx(mean))
    assert mean_in_table(found.table(), "f1") is None
