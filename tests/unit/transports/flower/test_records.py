from flwr.app import Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import InflatableObject, get_all_nested_objects
from hypothesis import given
from hypothesis import strategies as st
from tests.support.flower import FakeGrid, over_the_wire

from coterie.transports.flower.records import packed, payload_of


@given(st.binary(max_size=60))
def test_any_bytes_arrive_as_they_are(payload: bytes) -> None:
    FakeGrid({})  # says whose task this is, without which Flower makes no messages
    arrived = over_the_wire(Message(packed(payload, {"kind": "step"}), 100, "train"))
    assert payload_of(arrived.content, "server") == payload


@given(st.binary(max_size=60))
def test_any_bytes_arrive_by_the_objects_that_flower_sends_each_once(payload: bytes) -> None:
    records = packed(payload, {"kind": "step"})
    objects = get_all_nested_objects(records)
    arrived: dict[str, InflatableObject] = {}
    for name, sent in objects.items():  # children first
        children = {child: arrived[child] for child in sent.children} if sent.children else None
        arrived[name] = type(sent).inflate(sent.deflate(), children)
    whole = arrived[records.object_id]
    assert isinstance(whole, RecordDict)
    assert payload_of(whole, "server") == payload
