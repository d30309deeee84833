import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict

from coterie.errors import InputError
from coterie.transports.flower.grid import array_types, with_types
from coterie.transports.flower.records import RecordArrays, model_of


def record(**arrays: np.ndarray) -> ArrayRecord:
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def test_arrays_have_their_first_types_again_before_nodes_see_them() -> None:
    types = array_types(record(count=np.zeros(2, np.int32), w=np.zeros(2), v=np.zeros(1, np.float32)))
    model = record(count=np.array([1.6, 2.0]), w=np.array([1.6, 2.0]), v=np.array([0.5]), more=np.zeros(1))
    records = RecordDict({"arrays": model, "m": MetricRecord()})
    sent = with_types(records, types)
    arrays = model_of(sent)
    assert arrays["count"].dtype == np.int32
    assert arrays["count"].tolist() == [2, 2]
    assert arrays["w"].tolist() == [1.6, 2.0]
    assert [arrays[name].dtype.str for name in ("w", "v", "more")] == ["<f8", "<f4", "<f8"]
    assert list(sent) == ["arrays", "m"]


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
