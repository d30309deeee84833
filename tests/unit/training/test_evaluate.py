import numpy as np
import torch

from coterie.training import flatten
from coterie.training.evaluate import evaluate
from coterie.training.local import ArrayData, Problem, cross_entropy


def test_an_evaluation_uses_one_thread() -> None:
    seen: list[int] = []

    def counting(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        return cross_entropy(outputs, y)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        data = ArrayData(np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1]))
        problem = Problem(torch.nn.Linear(2, 2), data, counting)
        evaluate(problem, flatten.read(problem.model), data, batch_size=2)
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 1]
