"""Inputs with names, as tokenizers give them: packed into one array and unpacked again, bit for bit."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

pytest.importorskip("torch", reason="training needs coterie[train]")
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from coterie.errors import InputError
from coterie.training.data.example_readers import read_source
from coterie.training.data.fresh_data import FreshData
from coterie.training.data.keyword_inputs import InputFields, read_fields
from coterie.training.data.user_data import from_clients, from_torch
from coterie.training.keyword_model import KeywordModel, user_model
from coterie.training.local import ArrayData

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
KINDS: dict[str, Any] = {
    "float32": FLOATS,
    "int64": st.integers(-(2**62), 2**62),
    "bool": st.booleans(),
}


@st.composite
def named_arrays(draw: st.DrawFn) -> dict[str, np.ndarray]:
    rows = draw(st.integers(1, 4))
    names = draw(st.lists(st.sampled_from(["ids", "mask", "age", "where"]), min_size=1, unique=True))
    found = {}
    for name in names:
        kind = draw(st.sampled_from(list(KINDS)))
        shape = (rows, *draw(array_shapes(min_dims=0, max_dims=2, max_side=3)))
        found[name] = draw(arrays(np.dtype(kind), shape, elements=KINDS[kind]))
    return found


@given(named_arrays())
def test_packed_rows_are_unpacked_bit_for_bit(given_arrays: dict[str, np.ndarray]) -> None:
    read = read_fields(given_arrays, "mine")
    fields = InputFields.of(read)
    packed = fields.pack(read)
    assert packed.dtype in (np.float32, np.int64)
    again = fields.unpack(torch.from_numpy(packed))
    assert again.keys() == given_arrays.keys()
    for name, array in given_arrays.items():
        found = again[name].numpy()
        assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())


IDS = np.arange(12).reshape(4, 3)
MASK = np.ones((4, 3), bool)
Y = np.array([0, 1, 1, 0])


def test_named_inputs_come_as_arrays_or_in_pairs() -> None:
    whole = read_source(({"ids": IDS, "mask": MASK}, Y), "mine")
    pairs = read_source([({"mask": MASK[n], "ids": IDS[n]}, Y[n]) for n in range(4)], "mine")
    lists = read_source(({"ids": IDS.tolist(), "mask": torch.from_numpy(MASK)}, Y), "mine")
    assert whole.fields == pairs.fields == lists.fields
    for other in (pairs, lists):
        assert np.array_equal(whole.x, other.x)
        assert np.array_equal(whole.y, other.y)


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        (({"ids": IDS, "mask": MASK[:3]}, Y), "'mask' have 3 rows and 'ids' has 4"),
        (({"ids": [[1, 2], [3]]}, Y[:2]), "'ids' have different lengths; pad them to one shape"),
        (({"ids": np.array(["a", "b"])}, Y[:2]), "must be an array of numbers"),
        (({"ids": np.full((2, 2), np.nan)}, Y[:2]), "must be finite numbers"),
        (({}, Y), "empty dictionary"),
        ([({"ids": [1, 2]}, 0), ({"ids": [1]}, 1)], r"'ids': input 0 has the shape \(2,\) .* \(1,\); pad"),
        ([({"ids": [1]}, 0), ({"words": [1]}, 1)], "example 1 has the inputs words, and the first ids"),
        ([{"ids": [1], "labels": 0}], "an example is a dictionary with the keys ids, labels; give pairs instead"),
    ],
)  # fmt: skip
def test_unusable_inputs_are_refused_with_advice(source: Any, wrong: str) -> None:  # noqa: ANN401
    with pytest.raises(InputError, match=wrong):
        read_source(source, "mine")


def test_all_clients_and_the_test_set_have_the_same_names() -> None:
    clients = {"ann": ({"ids": IDS, "mask": MASK}, Y), "bob": ({"mask": MASK[:2], "ids": IDS[:2]}, Y[:2])}
    data = from_clients(clients, ({"ids": IDS, "mask": MASK}, Y), columns=False)
    assert data.fields is not None
    assert [field.name for field in data.fields.fields] == ["ids", "mask"]
    assert data.train_x.shape == (6, 6)
    with pytest.raises(InputError, match="'bob' and 'ann' differ"):
        from_clients({**clients, "bob": (IDS.astype(float), Y)}, columns=False)
    with pytest.raises(InputError, match="different named inputs"):
        from_torch(clients["ann"], ({"ids": IDS, "other": MASK}, Y))


class Output:
    """What models of the transformers library return."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits


class Words(nn.Module):
    """A mean of embeddings over the words that the mask keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.last = nn.Embedding(12, 4), nn.Linear(4, 2)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> Output:
        assert mask.dtype == torch.bool
        kept = self.embedding(ids) * mask[..., None]
        return Output(self.last(kept.sum(1)))


def test_the_model_is_called_with_keyword_arguments() -> None:
    read = read_source(({"ids": IDS, "mask": MASK}, Y), "mine")
    assert read.fields is not None
    model = Words()
    packed = KeywordModel(model, read.fields)
    expected = model(ids=torch.from_numpy(IDS), mask=torch.from_numpy(MASK)).logits
    assert torch.equal(packed(torch.from_numpy(read.x)), expected)
    assert user_model(packed) is model
    assert user_model(model) is model


class Shaken(Dataset[Any]):
    """Named inputs, of which one is moved at random whenever it is read."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> Any:  # noqa: ANN401 - named inputs and a label
        return {"point": torch.full((2,), float(number)) + torch.rand(2), "ids": torch.from_numpy(IDS[number])}, Y[
            number
        ]


def whole_batch(items: list[Any]) -> Any:  # noqa: ANN401 - named inputs and labels
    return {key: torch.stack([x[key] for x, _ in items]) for key in ("point", "ids")}, torch.tensor(
        [y for _, y in items]
    )


@pytest.mark.parametrize("source", [Shaken(), DataLoader(Shaken(), batch_size=2, collate_fn=whole_batch)])
def test_named_inputs_with_random_transforms_are_read_again_in_every_pass(source: Any) -> None:  # noqa: ANN401 - a source of examples
    data = from_torch(source)
    assert data.sources
    assert data.fields is not None
    fresh = FreshData(data.sources, ArrayData(data.train_x, data.train_y), labelled=True, fields=data.fields)

    def read(seed: int) -> tuple[dict[str, Any], torch.Tensor]:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            x, y = fresh.batch(np.array([3, 1]))
        assert data.fields is not None
        return data.fields.unpack(x), y

    (first, y), (again, _), (other, _) = read(1), read(1), read(2)
    assert y.tolist() == [0, 1]
    assert torch.equal(first["ids"], torch.from_numpy(IDS[[3, 1]]))
    assert torch.equal(first["point"], again["point"])
    assert not torch.equal(first["point"], other["point"])
    assert ((first["point"] - torch.tensor([[3.0], [1.0]])) < 1).all()
