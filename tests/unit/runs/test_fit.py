"""Models and losses that do not fit the data are found before a run, and the message says what to do."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs coterie[train]")
import torch
from tests.support.learning import BatchNormNet
from torch import nn

from coterie.errors import ConfigError
from coterie.runs.engine.federation import make_federation
from coterie.runs.settings.toml import make_config
from coterie.training.data.user_data import from_clients

SETTINGS = {"clients.count": 2, "cohort.size": 2, "training.batch_size": 4}


def sized(*sizes: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {f"c{n}": (rng.random((size, 5), np.float32), np.arange(size) % 3) for n, size in enumerate(sizes)}


class Convolution(nn.Module):
    """Batch normalisation over the pixels of one image."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.BatchNorm2d(1), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(self.norm(x[:, None, None])[:, 0, 0])
        return scores


@pytest.mark.parametrize(
    ("sizes", "more", "said"),
    [
        (
            (8, 9),
            {},
            r"batch_size = 4: 'c1' has 9 examples, so its last batch has a single one, .* set training.drop_last",
        ),
        ((8, 9), {"training.drop_last": True}, ""),
        ((8, 10), {}, ""),
        ((8, 1), {"training.drop_last": True}, "leave this client out"),
        ((8, 9), {"training.batch_size": 1}, "set a larger training.batch_size"),
    ],
)
def test_a_last_batch_of_one_is_refused_with_batch_normalisation(
    sizes: tuple[int, ...], more: dict[str, Any], said: str
) -> None:
    config, data = make_config({**SETTINGS, **more}), from_clients(sized(*sizes))
    make_federation(config, data, nn.Linear(5, 3))  # without batch normalisation, any batch will do
    make_federation(config, data, Convolution())  # an image has several values in a channel
    if not said:
        make_federation(config, data, BatchNormNet())
        return
    with pytest.raises(ConfigError, match=said):
        make_federation(config, data, BatchNormNet())


def test_a_sum_in_place_of_a_mean_is_refused() -> None:
    config, data = make_config(SETTINGS), from_clients(sized(8, 8))
    make_federation(config, data, nn.Linear(5, 3), nn.CrossEntropyLoss())
    make_federation(config, data, nn.Linear(5, 3), nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0])))
    with pytest.raises(ConfigError, match=r"for the same example twice, so it is no mean; return one number for each"):
        make_federation(config, data, nn.Linear(5, 3), nn.CrossEntropyLoss(reduction="sum"))
