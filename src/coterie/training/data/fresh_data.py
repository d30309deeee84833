"""Examples that are read again in every pass, so that random transforms work as in a torch training loop.

All global generators (torch, numpy, Python) are seeded from torch's generator, which is seeded for each client and
round. A run can therefore be repeated, and resumed after a crash, with the same bits.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch.utils.data import default_collate

from coterie.cohorts.circles import Indices
from coterie.errors import InputError
from coterie.training.data.dataset import ExampleSource
from coterie.training.data.example_readers import as_image, is_image, one_hot_labels
from coterie.training.data.generators import others_seeded
from coterie.training.data.keyword_inputs import InputFields, read_fields
from coterie.training.local import ArrayData, Batch


class FreshData:
    """Examples from a list of sources, each read when a batch needs it."""

    def __init__(
        self, sources: Sequence[ExampleSource], first: ArrayData, *, labelled: bool, fields: InputFields | None = None
    ) -> None:
        """Take the sources, and the examples ``first`` as read from them under a fixed seed.

        ``fields`` are the names of the inputs, if they have names.
        """
        self._sources, self._labelled, self._fields = tuple(sources), labelled, fields
        self._ends = np.cumsum([len(source.numbers) for source in self._sources])
        self._whole = first.x.dtype == np.int64
        self.digest = hashlib.sha256(first.x.data).digest() + hashlib.sha256(first.y.data).digest()
        """A digest of the examples, by which other examples are detected."""

    def __len__(self) -> int:
        return int(self._ends[-1])

    def batch(self, indices: Indices) -> Batch:
        """Read these examples. The draws of their transforms depend on torch's generator only."""
        places = np.searchsorted(self._ends, indices, side="right")
        with others_seeded(int(torch.randint(2**62, ()))):
            parts = [self._read(place, indices[places == place]) for place in np.unique(places)]
        if len(parts) == 1:
            return parts[0]
        chosen = torch.from_numpy(np.argsort(np.argsort(places, kind="stable"), kind="stable"))
        x, y = (torch.cat([part[side] for part in parts]).index_select(0, chosen) for side in (0, 1))
        return x, y

    def _read(self, place: int, indices: Indices) -> Batch:
        source = self._sources[place]
        begin = int(self._ends[place]) - len(source.numbers)
        items = [source.items[source.numbers[index - begin]] for index in indices.tolist()]
        if source.collate is not None:
            x, y = source.collate(items)
        else:
            x, y = default_collate([(as_image(x) if is_image(x) else x, y) for x, y in items])
        if self._fields is not None:
            x = self._fields.pack(read_fields(x, "a batch"))
        x, y = torch.as_tensor(x), torch.as_tensor(y)
        if len(x) != len(items) or len(y) != len(items):
            raise InputError(f"a batch of {len(items)} examples has {len(x)} inputs and {len(y)} targets")
        return x.to(torch.int64 if self._whole else torch.float32), self._targets(y)

    def _targets(self, y: torch.Tensor) -> torch.Tensor:
        if not self._labelled:
            return y.to(torch.float32).reshape(len(y), -1)
        if y.dim() == 2:  # one-hot rows or mixed labels: cross entropy takes both
            labels = one_hot_labels(y.numpy())
            return y.to(torch.float32) if labels is None else torch.from_numpy(labels)
        return y.to(torch.int64)
