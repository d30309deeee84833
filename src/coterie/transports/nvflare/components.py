"""The components of a job that NVFlare built on a site, and the kinds of them that a site accepts.

Every component gets NVFlare's events, and may send what it likes. A configuration does not tell what is built: a path
may name any function, and what it returns is the component. So a site looks at the objects, at ``ABOUT_TO_START_RUN``,
the first event of a job. What a component does before that, while it is built, cannot be stopped.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import EventScope, FedEventHeader, FLContextKey, ReservedTopic
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.logging.constants import is_log_streaming_allowed
from nvflare.private.privacy_manager import PrivacyService
from nvflare.widgets.widget import WidgetID

from coterie.deployment.logs import LOGGER, format_frames, quote
from coterie.transports.nvflare.commands import refuse_invitations
from coterie.transports.nvflare.files import (
    CONFIG,
    read_config,
    stop_bytecode,
    stop_imports_from_other_jobs,
    stop_imports_from_workspace,
)

_SENDER = {"id": "auto_log_streamer", "path": "nvflare.app_common.logging.job_log_streamer.JobLogStreamer"}
_ERRORS = {"target_parent_server": True, "log_file_name": "error_log.txt"}
_INTERVALS = frozenset({"liveness_interval", "poll_interval"})

_BASES = frozenset(
    {
        "nvflare.apis.fl_component.FLComponent",
        "nvflare.apis.persistable.StatePersistable",
        "nvflare.app_common.tracking.log_writer.LogWriter",
        "nvflare.app_common.utils.fl_component_wrapper.FLComponentWrapper",
        "nvflare.widgets.widget.Widget",
    }
)
_KINDS = frozenset(
    {
        "nvflare.apis.executor.Executor",
        "nvflare.app_common.abstract.learner_spec.Learner",
        "nvflare.app_common.abstract.model_learner.ModelLearner",
        "nvflare.app_common.ccwf.comps.np_trainer.NPTrainer",
        "nvflare.app_common.executors.client_api_executor.ClientAPIExecutor",
        "nvflare.app_common.executors.learner_executor.LearnerExecutor",
        "nvflare.app_common.executors.model_learner_executor.ModelLearnerExecutor",
        "nvflare.app_common.np.np_trainer.NPTrainer",
        "nvflare.app_common.np.np_validator.NPValidator",
        "nvflare.app_common.widgets.convert_to_fed_event.ConvertToFedEvent",
        "nvflare.app_common.widgets.decomposer_reg.DecomposerRegister",
        "nvflare.app_opt.tracking.mlflow.mlflow_writer.MLflowWriter",
        "nvflare.app_opt.tracking.tb.tb_writer.TBWriter",
        "nvflare.app_opt.tracking.wandb.wandb_writer.WandBWriter",
    }
)
"""What a job may have on a site. They train, or make events that stay there; none of them sends anything by itself."""

_OUT, _IN = "out", "in"


class Guard(FLComponent):
    """A component of Coterie on a site. It judges a job before the job starts, and keeps federated events on the site.

    Components that it does not accept get no event from then on, so they are never started.
    """

    def __init__(self) -> None:
        super().__init__()
        stop_bytecode()
        stop_imports_from_workspace()
        self._kept: set[str] = set()
        self._is_judged = False

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Judge the job when it is about to start, stop tasks that it did not ask for, and keep federated events.

        The server can send a federated event of any type, so only a local one means that the job starts. Events of the
        job's own contain metrics of this site, which NVFlare would send to the server outside of tasks. NVFlare does
        not forward received events.

        A site asks the server for tasks when the job has started. The server and other sites can also send tasks as
        messages (``DO_TASK``), even before: NVFlare's clients need that to control workflows, and nothing else does.
        """
        if fl_ctx.get_prop(FLContextKey.EVENT_SCOPE) == EventScope.FEDERATION:
            self._keep(event_type, fl_ctx.get_prop(FLContextKey.EVENT_DATA))
        elif event_type == EventType.ABOUT_TO_START_RUN:
            _refuse_sent_tasks(fl_ctx.get_engine())
            _keep_errors(fl_ctx.get_engine())
            refuse_invitations(fl_ctx.get_engine().get_cell().core_cell)  # also to the process of a script
            folder = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_app_dir(fl_ctx.get_job_id())
            stop_imports_from_other_jobs(Path(folder).resolve())
            self.judge(fl_ctx)
            self._is_judged = True
            if fl_ctx.get_prop(FLContextKey.RUNNER).running_tasks:
                _abort(fl_ctx)
        elif event_type == EventType.BEFORE_TASK_DATA_FILTER and not self._is_judged:
            _abort(fl_ctx)
        super().handle_event(event_type, fl_ctx)

    def judge(self, fl_ctx: FLContext) -> None:
        """Judge the job, and refuse or accept it. One that cannot be judged is refused: NVFlare would go on with it."""
        try:
            refusal = _reason_to_refuse(self, fl_ctx)
        except Exception as error:
            LOGGER.warning("could not judge the components of the job:\n%s", format_frames(error))
            refusal = "the components of the job cannot be judged, so it is refused here"
        if refusal:
            LOGGER.warning("%s", refusal)
            self.refuse(refusal, fl_ctx)
        else:
            self.accept(fl_ctx)

    def refuse(self, reason: str, fl_ctx: FLContext) -> None:
        """Refuse this job on this site."""
        raise NotImplementedError

    def accept(self, fl_ctx: FLContext) -> None:
        """Let this job start on this site; the default needs no action."""

    def _keep(self, event_type: str, data: object) -> None:
        """Mark an event as received, so that no component sends it."""
        if isinstance(data, Shareable) and data.get_header(FedEventHeader.DIRECTION, _OUT) == _OUT:
            data.set_header(FedEventHeader.DIRECTION, _IN)
            if event_type not in self._kept:
                self._kept.add(event_type)
                LOGGER.info("events %s stay on this site: they would not be protected", quote(event_type))


def _refuse_sent_tasks(engine: Any) -> None:  # noqa: ANN401 - NVFlare has no types
    """Let NVFlare answer that it knows no tasks in messages."""
    engine.aux_runner.topic_table.pop(ReservedTopic.DO_TASK, None)


def _keep_errors(engine: Any) -> None:  # noqa: ANN401 - NVFlare has no types
    """Let NVFlare collect no texts of errors: they may quote data, and it gives them to a server that asks."""
    collector = engine.widgets.get(WidgetID.INFO_COLLECTOR)
    if collector:
        collector.handle_event = lambda *_event: None


def _abort(ctx: FLContext) -> None:
    """Abort the job on this site: NVFlare then drops the results of tasks that are running."""
    LOGGER.warning("the job is aborted here: it got a task before it started, and before it could be judged")
    ctx.get_prop(FLContextKey.RUNNER).run_abort_signal.trigger(True)


def _reason_to_refuse(guard: Guard, ctx: FLContext) -> str:
    """Return why this job is refused, if it is; silence the components that are the reason, and put the guard first.

    A guard must get every event first: a component before it could send the event. The list keeps its length, and
    components after the guard keep their places, because NVFlare is going through it.
    """
    engine, runner = ctx.get_engine(), ctx.get_prop(FLContextKey.RUNNER)
    executors = list(runner.task_router.task_table.values())
    of_nvflare = _of_nvflare(engine, runner, ctx)
    strangers = [part for part in engine.handlers if id(part) not in of_nvflare and not _is_accepted(part)]
    silenced = {id(part) for part in strangers}
    others = [FLComponent() if id(part) in silenced else part for part in engine.handlers if part is not guard]
    engine.handlers[:] = [guard, *others]
    wrapped = [executor.executor for executor in executors if isinstance(executor, Guard)]
    strangers += [part for part in wrapped if not _is_accepted(part)]
    if strangers:
        return (
            f"{_named(strangers)}: components of such kinds may send data of this site by themselves, so the job is "
            "refused here. Leave them out of the client's part of the job, or let the script do their work"
        )
    if beside := [executor for executor in executors if not isinstance(executor, Guard)]:
        return (
            f"{_named(beside)} as an executor beside PrivateExecutor: its results would leave as they are, so the job "
            "is refused here. Let PrivateExecutor have all tasks"
        )
    return ""


def _of_nvflare(engine: Any, runner: Any, ctx: FLContext) -> Collection[int]:  # noqa: ANN401 - NVFlare has no types
    """Return the identities of the components that are not the job's: NVFlare's own, and those of the site's policy."""
    policy = PrivacyService.get_manager()
    chosen = (policy.components or {}).values() if policy else ()
    sender = engine.get_component(_SENDER["id"])
    own = [engine.aux_runner, engine.object_streamer, *engine.widgets.values(), runner]
    return {id(part) for part in (*own, *chosen, *([sender] if sender and _is_added(ctx) else []))}


def _is_added(ctx: FLContext) -> bool:
    """Return whether NVFlare added the sender of the error log to this job, on a site that allows it."""
    config = Path(ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_app_config_dir(ctx.get_job_id()))
    listed = read_config(config / CONFIG).get("components")
    is_last = isinstance(listed, list) and bool(listed) and is_log_sender(listed[-1])
    return is_last and is_log_streaming_allowed(ctx)


def is_log_sender(component: object) -> bool:
    """Return whether an entry of a job is exactly the sender of the error log that NVFlare adds to jobs."""
    args = component.get("args") if isinstance(component, dict) else None
    if not isinstance(args, dict) or component != {**_SENDER, "args": args}:
        return False
    others = {name: value for name, value in args.items() if name not in _INTERVALS}
    return others == _ERRORS and all(type(args[name]) in (int, float) for name in args.keys() & _INTERVALS)


def _is_accepted(part: object) -> bool:
    """Return whether a component is of an accepted kind, or of the job's own code and based on such kinds only."""
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(part).__mro__}
    of_nvflare = {name for name in names if name.startswith("nvflare.")}
    return of_nvflare <= _BASES | _KINDS and (isinstance(part, Guard) or not of_nvflare.isdisjoint(_KINDS))


def _named(parts: Collection[object]) -> str:
    kinds = dict.fromkeys(f"{type(part).__module__}.{type(part).__qualname__}" for part in parts)
    return "the job has " + ", ".join(map(quote, kinds))
