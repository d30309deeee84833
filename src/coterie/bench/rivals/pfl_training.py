"""Apple's pfl as a rival: its federated averaging on PyTorch, with one process for each core.

It runs as users of pfl 0.6.0 run it: ``FederatedAveraging.run`` with a ``SimulatedBackend`` and a ``PyTorchModel``,
whose processes divide the cohort among themselves and add their sums by torch.distributed. Each has one thread. A round
is timed from pfl's callbacks, in the slowest process. Only the first round is evaluated, which pfl requires and which
never counts.
"""

import multiprocessing
import os
from collections.abc import Sequence
from functools import partial
from itertools import cycle
from typing import Any, TypeAlias

from coterie.bench.loopback import free_port
from coterie.bench.rivals.process import Order, Orders, Serve
from coterie.bench.rivals.work import RivalTasks
from coterie.bench.training import Scenario
from coterie.training import flatten
from coterie.training.local import LocalSGD, one_thread

# pfl may be absent, so none of its types can be named here.
_Pfl: TypeAlias = Any


def parts(scenario: Scenario, rounds: int, workers: int) -> Sequence[Serve]:
    """Return the processes to run, one for each worker; they find each other at the address of the first."""
    count = max(1, workers)
    addresses = ",".join([f"127.0.0.1:{free_port()}"] * count)
    return [partial(serve, scenario, rounds, addresses if count > 1 else "", rank) for rank in range(count)]


def serve(scenario: Scenario, rounds: int, addresses: str, rank: int, orders: Orders) -> None:
    """Run one of the processes of a simulation."""
    if addresses:
        os.environ |= {"PFL_WORKER_ADDRESSES": addresses, "PFL_WORKER_RANK": str(rank)}
    os.environ["PFL_PYTORCH_DEVICE"] = "cpu"
    # pfl exchanges messages with its other processes only in a process of this name.
    multiprocessing.current_process().name = "MainProcess"
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Weighted
    from pfl.model.pytorch import PyTorchModel

    place = RivalTasks(scenario, rounds)
    problem, module = place.problem, place.problem.model
    turns = _turns(orders, place)
    work = turns.work()

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return problem.losses(module(x), y).mean()

    def metrics(x: torch.Tensor, y: torch.Tensor) -> dict[str, _Pfl]:
        return {"examples": Weighted(0.0, len(y))}

    def examples(client: str) -> _Pfl:
        return Dataset(problem.data.batch(place.work(turns.order.number, client)[1]), user_id=client)

    # pfl looks for them there.
    module.loss, module.metrics = loss, metrics  # type: ignore[assignment]  # a Module has no such attributes
    data = FederatedDataset(examples, turns.client)
    with one_thread():
        FederatedAveraging().run(
            NNAlgorithmParams(
                central_num_iterations=rounds + 1,  # before the last, it waits until the connection is closed
                evaluation_frequency=rounds + 1,
                train_cohort_size=scenario.cohort,
                val_cohort_size=0,
            ),
            SimulatedBackend(training_data=data, val_data=data),
            PyTorchModel(
                module,
                partial(torch.optim.SGD, momentum=work.momentum, weight_decay=work.weight_decay),
                torch.optim.SGD(module.parameters(), lr=1.0),
            ),
            NNTrainHyperParams(
                local_batch_size=work.batch_size,
                local_num_epochs=work.epochs,
                local_learning_rate=turns,
            ),
            callbacks=[turns],
            send_metrics_to_platform=False,
        )


def _turns(orders: Orders, place: RivalTasks) -> _Pfl:
    from pfl.callback.base import TrainingProcessCallback
    from pfl.hyperparam import HyperParam
    from pfl.metrics import Metrics

    class Turns(HyperParam, TrainingProcessCallback):  # type: ignore[misc]  # pfl may be absent
        """Starts a round when it is the turn of pfl, with our cohort; its value is the round's learning rate."""

        order = Order(1, place.strategy.clients)

        def work(self) -> LocalSGD:
            return place.work(self.order.number, self.order.clients[0])[0]

        def value(self) -> float:
            return self.work().learning_rate

        def client(self) -> str:
            """Return the next client; all processes go through the same cohort, and each takes its part."""
            return next(self.clients)

        def on_train_begin(self, *, model: _Pfl) -> _Pfl:
            self.begin()
            return Metrics()

        def after_central_iteration(
            self, aggregate_metrics: _Pfl, model: _Pfl, *, central_iteration: int
        ) -> tuple[bool, _Pfl]:
            orders.done(lambda: flatten.read(model.pytorch_model))
            self.begin()
            return False, Metrics()

        def begin(self) -> None:
            self.order = orders.next()
            self.clients = cycle(self.order.clients)

    return Turns()
