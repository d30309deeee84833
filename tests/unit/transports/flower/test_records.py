import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict

from coterie.errors import InputError
from coterie.transports.flower.grid import whole_numbers, with_whole_numbers
from coterie.transports.flower.records import RecordArrays, model_of


def record(**arrays: np.ndarray) -> ArrayRecord:
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def test_whole_numbers_are_whole_again_before_nodes_see_them() -> None:
    whole = whole_numbers(record(count=np.zeros(2, np.int32), w=np.zeros(2)))
    assert whole == {"count": np.dtype(np.int32)}
    records = RecordDict({"arrays": record(count=np.array([1.6, 2.0]), w=np.array([1.6, 2.0])), "m": MetricRecord()})
    sent = with_whole_numbers(records, whole)
    arrays = model_of(sent)
    assert arrays["count"].dtype == np.int32
    assert arrays["count"].tolist() == [2, 2]
    assert arrays["w"].tolist() == [1.6, 2.0]
    assert list(sent) == ["arrays", "m"]
    assert with_whole_numbers(records, {}) is records


def test_arrays_of_a_record_are_a_mapping_in_the_order_of_the_record() -> None:
    arrays = RecordArrays(record(b=np.zeros(2), a=np.ones(3)))
    assert list(arrays) == ["b", "a"]
    assert len(arrays) == 2
    assert "a" in arrays
    assert "c" not in arrays
    assert arrays["a"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("records", [RecordDict(), RecordDict({"a": ArrayRecord({}), "b": ArrayRecord({})})])
def test_a_model_is_one_record(records: RecordDict) -> None:
    with pytest.raises(InputError, match="exactly one ArrayRecord, not"):
        model_of(records)
