"""Which components of a job a site accepts, after NVFlare has built them."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs coterie[nvflare]")

from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.abstract.model_learner import ModelLearner
from nvflare.app_common.ccwf.cyclic_client_ctl import CyclicClientController
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.app_common.widgets.convert_to_fed_event import ConvertToFedEvent
from nvflare.app_common.widgets.streaming import AnalyticsReceiver
from nvflare.private.fed.client.client_engine_executor_spec import TaskAssignment
from nvflare.widgets.fed_event import ClientFedEventRunner
from nvflare.widgets.widget import Widget
from tests.support.nvflare_jobs import PRIVATE, STREAMER, TRAINER, Engine, deploy, job, refusal, started
from tests.support.nvflare_jobs import site_environment as site_environment

from coterie.transports.nvflare import components
from coterie.transports.nvflare.executor import PrivateExecutor

pytestmark = pytest.mark.usefixtures("site_environment")

COMMON = "nvflare.app_common"
ERRORS = {"target_parent_server": True, "log_file_name": "error_log.txt"}


class Own(Executor):
    """An executor of the job's own."""

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        return shareable


class OwnLearner(ModelLearner):
    """A learner of the job's own."""


class OwnHandler(Widget):
    """A component of the job's own that gets events, and is made for nothing else."""


class OwnCyclic(CyclicClientController):
    """A workflow that clients control, in a class of the job's own."""


class Mixed(ConvertToFedEvent, ClientFedEventRunner):
    """A sender of events that is of an accepted kind as well."""

    def __init__(self) -> None:
        ClientFedEventRunner.__init__(self, "metrics")


class Receiver(AnalyticsReceiver):
    """A receiver of metrics, which may send them to any address."""

    def __init__(self) -> None:
        super().__init__([ANALYTIC_EVENT_TYPE])

    def initialize(self, fl_ctx: FLContext) -> None: ...

    def save(self, fl_ctx: FLContext, shareable: Shareable, record_origin: str) -> None: ...

    def finalize(self, fl_ctx: FLContext) -> None: ...


@pytest.fixture(autouse=True)
def of_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the classes of this file be importable as those of a job."""
    module = ModuleType("of_a_job")
    for kind in (Own, OwnLearner, OwnHandler, OwnCyclic, Mixed, Receiver):
        monkeypatch.setattr(module, kind.__name__, kind, raising=False)
    monkeypatch.setitem(sys.modules, "of_a_job", module)


def wrapped(executor: dict[str, Any], *components: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a job with this executor under the private one."""
    config = job("x", *components)
    config["executors"][0]["executor"]["args"]["executor"] = executor
    return config


SCRIPT = {
    "path": f"{COMMON}.executors.client_api_executor.ClientAPIExecutor",
    "args": {"execution_mode": "in_process", "task_script_path": "client.py"},
}
LEARNER = {"path": f"{COMMON}.executors.model_learner_executor.ModelLearnerExecutor", "args": {"learner_id": "a"}}


@pytest.mark.parametrize(
    "config",
    [
        wrapped(SCRIPT),
        wrapped(LEARNER, {"id": "a", "path": "of_a_job.OwnLearner"}),
        wrapped({"path": "of_a_job.Own"}),
        job("x", {"id": "a", "name": "ConvertToFedEvent", "args": {"events_to_convert": []}}),
        job("x", {"id": "a", "path": "nvflare.app_opt.tracking.tb.tb_writer.TBWriter"}),
        job("x", {"id": "a", "path": f"{COMMON}.widgets.decomposer_reg.DecomposerRegister", "args": {"classes": []}}),
        job("x", {"id": "a", "path": "pathlib.Path"}),  # no component of NVFlare: it gets no events
        job("x", {"id": "auto_log_streamer", "path": STREAMER, "args": ERRORS}),  # NVFlare added it
    ],
)
def test_ordinary_jobs_are_accepted(config: dict[str, Any], tmp_path: Path) -> None:
    assert refusal(started(deploy(tmp_path / "site-1", config))) is None


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (wrapped({"path": f"{COMMON}.executors.ipc_exchanger.IPCExchanger"}), "IPCExchanger"),
        (wrapped({"path": "of_a_job.OwnCyclic", "args": {"task_name_prefix": "c"}}), "OwnCyclic"),
        (job("x", {"id": "a", "path": "of_a_job.OwnHandler"}), "OwnHandler"),
        (job("x", {"id": "a", "path": "of_a_job.Mixed"}), "Mixed"),
        (job("x", {"id": "a", "path": "of_a_job.Receiver"}), "Receiver"),
        (job("x", {"id": "a", "class_path": STREAMER}), "JobLogStreamer"),
        (job("x", {"id": "auto_log_streamer", "path": STREAMER}), "JobLogStreamer"),
        (job("x", {"id": "auto_log_streamer", "class_path": STREAMER, "args": ERRORS}), "JobLogStreamer"),
        (
            job("x", {"id": "mine", "path": STREAMER, "args": {"log_file_name": "error_log.txt"}}),
            "JobLogStreamer",
        ),
        (job("x", {"id": "a", "path": f"{COMMON}.logging.site_log_streamer.SiteLogStreamer"}), "SiteLogStreamer"),
        (job("x", {"id": "a", "path": TRAINER, "args": {"model_name": {"path": STREAMER}}}), "JobLogStreamer"),
        (
            job(
                "x",
                task_result_filters=[
                    {"tasks": ["*"], "filters": [{"path": f"{COMMON}.filters.exclude_vars.ExcludeVars"}]}
                ],
            ),
            "ExcludeVars",
        ),
    ],
)
def test_other_components_are_named_refused_and_silent(
    config: dict[str, Any],
    name: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = started(deploy(tmp_path / "site-1", config))
    assert refusal(engine) == "settings"
    assert f"{name}: components of such kinds may send data of this site" in caplog.text
    assert name not in {type(part).__name__ for part in engine.handlers}


def test_the_sender_of_the_error_log_is_refused_where_the_site_allows_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(components, "is_log_streaming_allowed", lambda _ctx: False)
    sender = {"id": "auto_log_streamer", "path": STREAMER, "args": ERRORS}
    assert refusal(started(deploy(tmp_path / "site-1", job("x", sender)))) == "settings"


def test_a_guard_gets_events_first_and_others_get_each_event_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str]] = []

    def note(part: FLComponent, event_type: str, _ctx: FLContext) -> None:
        seen.append((part.name, event_type))

    monkeypatch.setattr(ConvertToFedEvent, "handle_event", note)
    convert = {"path": f"{COMMON}.widgets.convert_to_fed_event.ConvertToFedEvent", "args": {"events_to_convert": []}}
    private = {"id": "late", "path": PRIVATE, "args": {"executor": {"path": TRAINER}}}
    described = {
        "components": [{"id": "a", **convert}, private, {"id": "b", **convert}],
        **{key: value for key, value in job("x").items() if key != "components"},
    }
    engine = started(deploy(tmp_path / "site-1", described))
    assert seen == [
        ("ConvertToFedEvent", event) for event in [EventType.ABOUT_TO_START_RUN] * 2 + [EventType.START_RUN] * 2
    ]
    assert isinstance(engine.handlers[0], PrivateExecutor)


@pytest.mark.parametrize("is_running", [False, True])
def test_a_task_that_runs_while_the_job_is_judged_aborts_the_job(is_running: bool, tmp_path: Path) -> None:
    """NVFlare may have chosen its executor before."""
    engine = Engine(deploy(tmp_path / "site-1", wrapped({"path": "of_a_job.Own"})))
    if is_running:
        engine.runner.running_tasks["1"] = TaskAssignment("train", "1", Shareable())
    engine.fire_event(EventType.ABOUT_TO_START_RUN, engine.new_context())
    assert engine.runner.run_abort_signal.triggered == is_running


@pytest.mark.parametrize("listed", [[], [{"id": "a", "path": "of_a_job.OwnHandler"}]])
def test_a_refused_job_gets_no_plain_evaluation_either(
    listed: list[dict[str, Any]], home: Path, tmp_path: Path
) -> None:
    folder = home / "nodes" / "site-1"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "node.toml").write_text('allow = "evaluate"\n')
    engine = started(deploy(tmp_path / "site-1", wrapped({"path": "of_a_job.Own"}, *listed)))
    task = FLModelUtils.to_shareable(FLModel(params={"w": 1}, metrics={"accuracy": 0.5}))
    reply = engine.runner.find_executor("validate").execute("validate", task, engine.new_context(), Signal())
    assert reply.get_return_code() == (ReturnCode.EXECUTION_EXCEPTION if listed else ReturnCode.OK)
