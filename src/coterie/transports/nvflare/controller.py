"""Private rounds for a controller of NVFlare: it gets the mean over whole circles, as if it were one client's result.

    PrivateFedAvg(num_clients=6, num_rounds=5, private={"privacy": 2})

:class:`PrivateRounds` is a mixin for any controller that needs only the mean and sends a model with ``send_model`` or
``send_model_and_wait``, like those derived from ``ModelController``. The server keeps its history (ledger and rosters)
in ``COTERIE_HOME``, a setting of its operator.
"""

import math
import secrets
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task, TaskCompletionStatus
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.app_common.workflows.model_controller import ModelController

from coterie.cohorts.ledger import Ledger
from coterie.deployment.aggregator import Aggregator
from coterie.deployment.engine import TRAIN, Arrays, Assignment
from coterie.deployment.enrolment import enrol
from coterie.deployment.form import Mean, as_type
from coterie.deployment.home import server_home
from coterie.deployment.logs import LOGGER, join_log
from coterie.deployment.reasons import Asked
from coterie.deployment.settings import LONGEST, read_settings
from coterie.errors import ConfigError, LocalProtocolError
from coterie.transports.nvflare.carrier import PLACE, NvflareCarrier, Result
from coterie.transports.nvflare.jobs import leave_out_coterie
from coterie.transports.nvflare.messages import KEY, TASK, Rounds, Work, name_of
from coterie.transports.nvflare.names import FUNCTIONS, LOG, WEIGHT

join_log(LOG)

_RESULT_META = ("nr_aggregated", "current_round", "props", "client_name", AppConstants.METRICS_AGGREGATION_INFO)
"""Entries about one round that NVFlare writes into the meta of the next round's model. Nodes do not get them."""


class PrivateRounds(ModelController):
    """Sends models by sessions of secure aggregation; put it before the controller's own class among the bases."""

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - the arguments of the wrapped controller
        private: Mapping[str, Any] | None = None,
        train_timeout: float = 3600.0,
        **kwargs: Any,  # noqa: ANN401 - the arguments of the wrapped controller
    ) -> None:
        """Take the settings of a private deployment in addition to those of the controller.

        Args:
            *args: for the controller.
            private: settings of :class:`~coterie.deployment.settings.PrivateSettings` by their names, as JSON has them:
                ``{"privacy": 2, "train_metrics": {"loss": [0, 5]}}``. Results are weighted by their number of steps, so
                ``most_examples`` is the largest number of steps that a client counts for.
            train_timeout: seconds for training, if the controller gives no timeout.
            **kwargs: for the controller.

        """
        super().__init__(*args, **kwargs)
        # NVFlare writes the configuration of a job from attributes with the names of arguments.
        self.private, self.train_timeout = dict(private or {}), train_timeout
        self._settings = read_settings(self.private, WEIGHT)
        if getattr(self, "aggregation_weights", None):
            raise ConfigError("aggregation_weights is for single results: set the weight of a client in its node.toml")
        self._aggregator: Aggregator | None = None
        self._types: dict[str, np.dtype[Any]] = {}

    def add_to_fed_job(self, job: Any, ctx: Any, **more: Any) -> None:  # noqa: ANN401 - NVFlare has no types
        """Add the controller to a job."""
        super().add_to_fed_job(job, ctx, **more)
        leave_out_coterie(job)

    def run(self) -> None:
        """Let all clients introduce themselves, then run the controller."""
        home, settings = server_home(), self._settings
        with Ledger.open(home / "ledger.sqlite") as ledger:
            carrier = NvflareCarrier(_ControllerTasks(self), secrets.randbits(63))
            wanted = int(getattr(self, "num_clients", 0))
            enrolment = enrol(carrier, home, settings, Asked(place=PLACE), wanted)
            self._aggregator = Aggregator(carrier, enrolment, ledger, settings, PLACE)
            super().run()
            self._aggregator.check_trained()

    def broadcast_model(
        self,
        data: FLModel,
        task_name: str = "train",
        targets: list[Any] | None = None,
        min_responses: int | None = None,
        timeout: int = 0,
        wait_time_after_min_received: int = 0,
        blocking: bool = True,
        callback: Callable[[FLModel], object] | None = None,
    ) -> list[FLModel] | None:
        """Return one result, the mean over whole circles; without a mean, a result that does not change the model.

        The protocol decides how many clients must answer and how long to wait for the others.
        """
        result = self._result(data, task_name, targets, timeout)
        if callback is not None:
            callback(result)
        return [result] if blocking else None

    def send_model(
        self,
        task_name: str = "train",
        data: FLModel | None = None,
        targets: list[str] | None = None,
        min_responses: int | None = None,
        timeout: int = 0,
        callback: Callable[[FLModel], object] | None = None,
    ) -> None:
        """Call a function with the mean over whole circles, then return."""
        self.broadcast_model(data, task_name, targets, timeout=timeout, blocking=False, callback=callback)

    def send_model_and_wait(
        self,
        task_name: str = "train",
        data: FLModel | None = None,
        targets: list[str] | None = None,
        min_responses: int | None = None,
        timeout: int = 0,
    ) -> list[FLModel]:
        """Return the mean over whole circles as the only result."""
        return self.broadcast_model(data, task_name, targets, timeout=timeout) or []

    def process_result_of_unknown_task(
        self,
        client: Client,
        task_name: str,
        client_task_id: str,
        result: Shareable,
        fl_ctx: FLContext,
    ) -> None:
        """Drop a result that came after the end of its step."""
        LOGGER.info("%s answered too late", client.name)

    def _result(self, data: FLModel, task_name: str, targets: list[Any] | None, timeout: float) -> FLModel:
        """Play a round on a model."""
        aggregator = self._aggregator
        if aggregator is None:
            raise LocalProtocolError("a model is sent before run() has enrolled the clients")
        function = FUNCTIONS.get(task_name)
        if function is None:
            raise ConfigError(
                f"results of {task_name!r} cannot be summed: a private task is one of {', '.join(FUNCTIONS)}"
            )
        arrays = self._to_arrays(data)
        meta = {key: value for key, value in (data.meta or {}).items() if key not in _RESULT_META}
        work = Work.of(arrays, meta, Rounds(data.start_round, data.current_round, data.total_rounds)).to_bytes()
        everybody = len(self.engine.get_clients())
        assignment = Assignment(
            function,
            name_of(work),
            arrays if function == TRAIN else {},
            round=data.current_round,
            share=min(1.0, len(targets) / everybody) if targets and everybody else 1.0,
            records=work,
        )
        mean = aggregator.mean(assignment, min(float(timeout or self.train_timeout), LONGEST))
        if function == TRAIN:
            aggregator.count(empty=mean is None)
        return self._model(data, arrays, mean)

    def _to_arrays(self, data: FLModel) -> Arrays:
        """Return the arrays of a model in the types of the first model."""
        found = data.params
        if (
            not isinstance(found, dict)
            or not found
            or not all(isinstance(value, np.ndarray) for value in found.values())
        ):
            raise ConfigError("the model must be numpy arrays by name: set server_expected_format to numpy")
        self._types = self._types or {name: array.dtype for name, array in found.items()}
        return {name: as_type(array, self._types.get(name)) for name, array in found.items()}

    @staticmethod
    def _model(data: FLModel, arrays: Arrays, mean: Mean | None) -> FLModel:
        """Return a mean as NVFlare's result; without a mean, the unchanged model."""
        params: Mapping[str, NDArray[Any]] = arrays if mean is None or not mean.arrays else mean.arrays
        metrics = None if mean is None else {name: value for name, value in mean.metrics.items() if name != WEIGHT}
        return FLModel(
            params_type=ParamsType.FULL,
            params=dict(params),
            metrics=metrics or None,
            current_round=data.current_round,
            total_rounds=data.total_rounds,
            meta={"client_name": "the mean"},
        )


class _ControllerTasks:
    """The tasks of a controller, with the interface of a carrier."""

    def __init__(self, controller: PrivateRounds) -> None:
        self._controller = controller

    def sites(self) -> Collection[str]:
        return [client.name for client in self._controller.engine.get_clients()]

    def is_gone(self, site: str) -> bool:
        return self._controller.get_client_disconnect_time(site) is not None

    def is_aborted(self) -> bool:
        return bool(self._controller.abort_signal.triggered)

    def assign(self, site: str, data: bytes, seconds: float, result: Result) -> Callable[[], None]:
        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:
            reply = client_task.result
            code = reply.get_return_code()
            result(reply.get(KEY), "" if code == ReturnCode.OK else str(code))
            client_task.result = None  # otherwise NVFlare keeps it until the task is cleaned up

        controller = self._controller
        task = Task(TASK, Shareable({KEY: data}), timeout=math.ceil(seconds), result_received_cb=received)
        controller.send(task=task, fl_ctx=controller.fl_ctx, targets=[site])
        return lambda: controller.cancel_task(task, TaskCompletionStatus.CANCELLED)


class PrivateFedAvg(PrivateRounds, FedAvg):
    """NVFlare's ``FedAvg`` under secure aggregation with multi-round privacy."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - the arguments of FedAvg
        """Take the arguments of ``FedAvg`` and of :class:`PrivateRounds`."""
        super().__init__(*args, **kwargs)
