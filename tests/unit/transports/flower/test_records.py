import pickle
from typing import Literal

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import InputError, PeerProtocolError
from coterie.transports.flower.grid import array_types, with_types
from coterie.transports.flower.records import HEADER, RecordArrays, model_of, name_of, pack, payload_of, view_of


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
def test_a_model_must_be_exactly_one_record(records: RecordDict) -> None:
    with pytest.raises(InputError, match="exactly one ArrayRecord, not"):
        model_of(records)


KINDS = ["<f4", ">f4", "<f8", "<i8", "|u1", "|b1"]


@given(
    st.sampled_from(KINDS), st.lists(st.integers(0, 4), max_size=3), st.sampled_from(["C", "F"]), st.integers(0, 2**32)
)
def test_a_view_of_an_array_is_what_flower_reads(
    kind: str, shape: list[int], order: Literal["C", "F"], seed: int
) -> None:
    content = np.random.default_rng(seed).integers(0, 2, shape).astype(kind)
    array = Array(np.asarray(content, order=order))
    seen, read = view_of(array), array.numpy()
    assert (seen.dtype, seen.shape) == (read.dtype, read.shape)
    assert np.array_equal(seen, read)


def test_a_view_shares_the_memory_of_its_record_and_cannot_change_it() -> None:
    array = Array(np.arange(1000.0))
    seen = view_of(array)
    assert np.shares_memory(seen, np.frombuffer(array.data, np.uint8))
    with pytest.raises(ValueError, match="read-only"):
        seen[0] = 1


@pytest.mark.parametrize(
    "data", [b"", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x09\x00" + bytes(200), b"PK\x03\x04" + bytes(50)]
)
def test_invalid_arrays_fail_with_the_same_error_as_in_flower(data: bytes) -> None:
    broken = Array("float32", (2,), "numpy.ndarray", data)
    with pytest.raises(Exception) as ours:  # noqa: PT011
        view_of(broken)
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        broken.numpy()
    assert type(ours.value) is type(theirs.value)


def test_an_array_that_is_shorter_than_its_header_says_is_refused() -> None:
    whole = Array(np.arange(10.0))
    with pytest.raises(ValueError, match=r"cannot reshape|read"):
        view_of(Array(whole.dtype, whole.shape, whole.stype, whole.data[:-8]))


@given(st.binary(min_size=1, max_size=300))
def test_a_payload_is_packed_as_flower_packs_an_array(payload: bytes) -> None:
    records = pack(payload, {"kind": "step"})
    (array,) = records.array_records["coterie-payload"].values()
    theirs = Array(np.frombuffer(payload, np.uint8))
    assert (array.dtype, array.shape, array.stype, array.data) == (
        theirs.dtype,
        theirs.shape,
        theirs.stype,
        theirs.data,
    )
    assert payload_of(records, "server") == payload


def test_records_of_other_types_are_no_header_and_no_payload() -> None:
    records = RecordDict({HEADER: MetricRecord()})
    with pytest.raises(PeerProtocolError, match="did not answer through private_mod"):
        payload_of(records, "node 1")
    records = RecordDict({HEADER: ConfigRecord(), "coterie-payload": MetricRecord()})
    assert payload_of(records, "node 1") == b""


def test_naming_records_leaves_no_copies_of_their_bytes_in_them() -> None:
    """Flower keeps a copy of the bytes that it names in each array, and Ray would send every model twice."""
    records = RecordDict({"arrays": record(w=np.zeros(1000)), "config": ConfigRecord({"lr": 0.1})})
    before = len(pickle.dumps(records))
    name = name_of(records)
    assert len(pickle.dumps(records)) < before + 500
    assert name == records.object_id.encode()
