"""An executor that wraps the executor of an app. The app runs when a session requests its result, which is sent masked.

    PrivateExecutor(ClientAPIExecutor(execution_mode="in_process", task_script_path="client.py"))

It must get all tasks of the app. Coterie's own tasks have one name (:data:`~.messages.TASK`); all others are refused,
except for evaluations that the operator allows (:mod:`coterie.deployment.reception`). The node's settings are in its
folder, ``$COTERIE_HOME/nodes/SITE``. No job can change them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from coterie.deployment.engine import TRAIN, AppReply, Arrays
from coterie.deployment.logs import LOGGER, format_frames, join_log
from coterie.deployment.node import PREFIX
from coterie.deployment.reasons import Reason
from coterie.deployment.reception import Reception
from coterie.deployment.replies import reply_error
from coterie.errors import ConfigError, TrainingError, regarding
from coterie.transports.nvflare.components import Guard
from coterie.transports.nvflare.filters import CODES as _CODES
from coterie.transports.nvflare.job_config import read_app
from coterie.transports.nvflare.jobs import leave_out_coterie
from coterie.transports.nvflare.messages import KEY, Work
from coterie.transports.nvflare.names import LOG, TASKS, WEIGHT
from coterie.transports.nvflare.request import SiteApp, TaskDelivery

join_log(LOG)


class PrivateExecutor(Guard, Executor):
    """Answers for this node in sessions of secure aggregation; wraps an app's executor."""

    def __init__(self, executor: Executor) -> None:
        """Wrap the executor of an app, which trains on the task ``train`` and evaluates on ``validate``.

        NVFlare sends both all events, because it builds both from the job's configuration.
        """
        super().__init__()
        if not isinstance(executor, Executor) or isinstance(executor, PrivateExecutor):
            raise ConfigError("PrivateExecutor wraps the executor of an app, once")
        self.executor = executor
        self._reception = Reception()
        self._site_app: SiteApp | ConfigError | None = None
        self._refuses = False

    def refuse(self, reason: str, fl_ctx: FLContext) -> None:
        """Refuse all sessions of this job, and take the tasks of other executors."""
        self._site_app, self._refuses = ConfigError(reason), True
        router = fl_ctx.get_prop(FLContextKey.RUNNER).task_router
        router.task_table = dict.fromkeys(router.task_table, self)
        router.patterns = [(pattern, self) for pattern, _ in router.patterns]

    def accept(self, fl_ctx: FLContext) -> None:
        """Read the app before it starts, and only once, because it may write to its folder when it runs."""
        if self._site_app is None:
            self._site_app = _app_of(fl_ctx)

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Answer a task, or refuse it."""
        site = fl_ctx.get_identity_name()

        def run(function: str, arrays: Arrays, work: Work) -> AppReply:
            return self._run(function, arrays, work, fl_ctx, abort_signal)

        delivery = TaskDelivery(task_name, shareable.get(KEY), site, lambda: self._read_app(fl_ctx), run)
        answer = self._reception.receive({f"{PREFIX}name": site}, delivery)
        if delivery.passed and self._refuses:
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)
        if delivery.passed:
            return metrics_of(self.executor.execute(task_name, shareable, fl_ctx, abort_signal))
        reply = make_reply(ReturnCode.OK)
        reply[KEY] = answer
        return reply

    def requires_materialized_task_result(self, _task_name: str) -> bool:
        """Return True: the result of an executor with its own process is used here and not sent."""
        return True

    def add_to_fed_job(self, job: Any, ctx: Any, **more: Any) -> None:  # noqa: ANN401 - NVFlare has no types
        """Add the executor to a job, for all tasks."""
        job.check_kwargs(args_to_check=more, args_expected={"tasks": False})
        job.add_executor(obj=self, tasks=["*"], ctx=ctx)
        leave_out_coterie(job)

    def _read_app(self, fl_ctx: FLContext) -> SiteApp:
        """Return the app of this job as this site received it. A job that was refused stays refused."""
        if self._site_app is None:
            self.judge(fl_ctx)
        found = self._site_app
        if not isinstance(found, SiteApp):
            with regarding(Reason.SETTINGS):
                raise found or ConfigError("the app of this job was not read")
        return found

    def _run(self, function: str, arrays: Arrays, work: Work, fl_ctx: FLContext, abort_signal: Signal) -> AppReply:
        """Run the app's executor on a model."""
        model = FLModel(params_type=ParamsType.FULL, params=dict(arrays), meta=work.entries())
        model.start_round, model.current_round, model.total_rounds = work.start, *work.rounds[1:]
        task, given = TASKS[function], FLModelUtils.to_shareable(model)
        try:
            reply = self.executor.execute(task, given, _context_of_app(fl_ctx), abort_signal)
            result = FLModelUtils.from_shareable(reply) if reply.get_return_code() == ReturnCode.OK else None
        except Exception as error:  # the text of the error may quote data
            LOGGER.warning("the app's executor failed:\n%s", format_frames(error))
            raise TrainingError("the app's executor failed") from None
        if result is None:
            raise TrainingError("the app's executor answered with an error")
        return read_result(result, work, trains=function == TRAIN)


def _app_of(ctx: FLContext) -> SiteApp | ConfigError:
    """Read the app of this job, or return the reason for its refusal."""
    workspace, job = ctx.get_prop(FLContextKey.WORKSPACE_OBJECT), ctx.get_job_id()
    try:
        return read_app(Path(workspace.get_app_dir(job)), Path(workspace.get_app_config_dir(job)))
    except ConfigError as error:
        return error


def _context_of_app(ctx: FLContext) -> FLContext:
    """Return a context for the app without what the server adds to a task: members of a session do not compare it."""
    own = ctx.clone()
    own.set_peer_context(FLContext())
    for key in (FLContextKey.TASK_DATA, FLContextKey.TASK_ID):
        own.put(key, None, private=True, sticky=False)
    return own


def metrics_of(reply: Shareable) -> Shareable:
    """Return only the metrics of a plain evaluation that are numbers, with their names.

    Many scripts train in every task, and also return a model.
    """
    code = reply.get_return_code()
    if code != ReturnCode.OK:
        return make_reply(code if code in _CODES else ReturnCode.EXECUTION_EXCEPTION)
    found = FLModelUtils.from_shareable(reply).metrics or {}
    numbers = {str(name): float(value) for name, value in found.items() if isinstance(value, int | float | np.number)}
    return FLModelUtils.to_shareable(FLModel(metrics=numbers))


def read_result(result: FLModel, work: Work, *, trains: bool) -> AppReply:
    """Return the model and the metrics of an app's result; a difference is added to the received model."""
    found: Mapping[str, Any] = result.params or {}
    if trains and (not isinstance(found, dict) or not all(isinstance(value, np.ndarray) for value in found.values())):
        raise reply_error(
            Reason.RECORDS, "the app must return numpy arrays by name: set server_expected_format to numpy"
        )
    arrays: Arrays = found if trains else {}
    if trains and result.params_type == ParamsType.DIFF:
        before = work.arrays()
        arrays = {name: _add_change(before.get(name), change) for name, change in found.items()}
    weight = (result.meta or {}).get(WEIGHT, 1)  # as in NVFlare's own average
    measured = {**(result.metrics or {}), WEIGHT: weight}
    return AppReply(
        arrays, {name: value.item() if isinstance(value, np.generic) else value for name, value in measured.items()}
    )


def _add_change(before: NDArray[Any] | None, change: NDArray[Any]) -> NDArray[Any]:
    """Return an array plus a change. A change that does not fit is returned unchanged, and detected later."""
    return change if before is None or before.shape != change.shape else np.asarray(before + change)
