"""Records of runs with noise: only columns that are declared public are written."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.cohorts.outcome import Outcome
from coterie.runs.algorithms import ALGORITHMS
from coterie.runs.records.record import PUBLIC, SCORES, RoundRecord, beside_noise, extend, record_type

MEASURED = {"train_loss", "clipped", "compute_seconds"}
"""What clients measure while they train."""


def test_every_field_is_public_or_a_score_or_measured_on_private_data() -> None:
    """A new field is withheld by default. Add it to one of these sets to decide."""
    assert set(RoundRecord.__struct_fields__) == PUBLIC | SCORES | MEASURED
    assert not PUBLIC & SCORES


@given(st.sets(st.sampled_from(["made_up", "another"])), st.floats(0.1, 9))
def test_only_declared_columns_are_kept(public: set[str], value: float) -> None:
    columns = ("made_up", "another")
    record = RoundRecord(
        round=3, outcome=Outcome.COMPLETED, train_loss=value, clipped=value, accuracy=value, epsilon=value, selected=4
    )
    kept = beside_noise(extend(record, columns, dict.fromkeys(columns, value)), public)
    assert type(kept) is record_type(columns)
    assert (kept.round, kept.outcome, kept.selected, kept.epsilon) == (3, Outcome.COMPLETED, 4, value)
    assert (kept.train_loss, kept.clipped, kept.accuracy) == (None, 0.0, None)
    for column in columns:
        assert getattr(kept, column) == (value if column in public else None)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_with_noise_no_score_of_own_models_is_kept(name: str) -> None:
    algorithm = ALGORITHMS[name]
    record = RoundRecord(round=1, outcome=Outcome.COMPLETED, accuracy=0.5, test_loss=0.5, error=0.5)
    record = extend(record, algorithm.columns, dict.fromkeys(algorithm.columns, 0.5))
    kept = msgspec.structs.asdict(algorithm.beside_noise(record))
    assert {field for field in SCORES if kept[field] is not None} == (set() if algorithm.personal else SCORES)
    assert {column for column in algorithm.columns if kept[column] is not None} == algorithm.public
