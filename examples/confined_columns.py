"""Three companies have different data about the same customers, and train with the companies of other regions.

Each of four regions has its own bank, shop and phone company, which have the same customers. They form a group: its
rows are the region's customers, and each company has its own columns. Whether a customer will leave
depends on columns of all three. In every iteration the companies of a region add their parts of the first layer by
additive sharing, and the regions add their gradients by secure aggregation. The companies of a region trust each other
with their data, and no other region learns it: see docs/confined.md.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

import coterie

Array: TypeAlias = npt.NDArray[np.float64]
Labels: TypeAlias = npt.NDArray[np.int64]
Region: TypeAlias = tuple[dict[str, Array], Labels]

COLUMNS = {"bank": 5, "shop": 4, "phone": 3}


def customers(count: int, seed: int) -> Region:
    """Return made-up customers: the columns of each company, and which customers will leave."""
    rng = np.random.default_rng(seed)
    known = {company: rng.normal(size=(count, columns)) for company, columns in COLUMNS.items()}
    unhappy = known["bank"][:, 0] + known["shop"][:, 1] * known["phone"][:, 0] - known["phone"][:, 2]
    return known, (unhappy > 0).astype(np.int64)


def learn(regions: Mapping[str, Any], test: tuple[Any, Labels], columns: int) -> float:
    """Train, and return the average accuracy of the regions' models."""
    # Any torch model can be used if its first layer is linear in its input.
    model = torch.nn.Sequential(torch.nn.Linear(columns, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    settings = {"training.learning_rate": 1.0, "training.evaluate_every": 60}
    result = coterie.train(
        model, clients=regions, test_set=test, algorithm="confined", rounds=60, settings=settings, progress=False
    )
    return result.accuracy or 0.0


def only(region: Region, company: str) -> tuple[Array, Labels]:
    """Return the data of one company: its array in place of the dictionary, and which customers will leave."""
    known, leaves = region
    return known[company], leaves


if __name__ == "__main__":
    regions = {name: customers(300, seed) for seed, name in enumerate(("north", "east", "south", "west"), start=1)}
    test = customers(1000, seed=0)
    together = learn(regions, test, sum(COLUMNS.values()))
    alone = learn({name: only(region, "bank") for name, region in regions.items()}, only(test, "bank"), COLUMNS["bank"])
    print(f"All three companies: {together:.1%} of the customers judged correctly. The bank alone: {alone:.1%}.")
