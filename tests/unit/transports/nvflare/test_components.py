"""The components that a job of NVFlare is made of, with NVFlare itself and without its network."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs coterie[nvflare]")

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.filter import ContentBlockedException
from nvflare.apis.fl_constant import EventScope, FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.app_common.workflows.model_controller import ModelController
from nvflare.fuel.utils.class_loader import load_class
from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import ScriptRunner
from nvflare.private.event import fire_event
from nvflare.private.fed.app.fl_conf import create_privacy_manager
from nvflare.widgets.fed_event import FedEventRunner

from coterie.cohorts.ledger import Ledger
from coterie.deployment.home import node_home, server_home
from coterie.errors import ConfigError, NothingTrained
from coterie.transports.nvflare import PrivateExecutor, PrivateFedAvg, PrivateRounds, PrivateRunner
from coterie.transports.nvflare.deployer import PrivateDeployer
from coterie.transports.nvflare.filters import PrivateJobs, PrivateResults
from coterie.transports.nvflare.job_config import read_app
from coterie.transports.nvflare.messages import KEY, TASK, Answer, NodeMessage, Rounds, Work, decode, encode

POLICY = """
{"default_scope": "coterie",
 "scopes": [{"name": "coterie",
             "task_data_filters": [{"path": "coterie.transports.nvflare.filters.PrivateResults", "direction": "out"}],
             "task_result_filters": [{"path": "coterie.transports.nvflare.filters.PrivateResults"}]}],
 "components": [{"id": "coterie", "path": "coterie.transports.nvflare.filters.PrivateJobs"}]}
"""
RESOURCES = """
{"components": [{"id": "coterie", "path": "coterie.transports.nvflare.filters.PrivateJobs"},
                {"id": "app_deployer", "path": "coterie.transports.nvflare.deployer.PrivateDeployer"}]}
"""
UNSET: dict[str, Any] = {"aggregation_weights": {}}  # NVFlare writes it in any case
SITES = [f"site-{number}" for number in range(1, 5)]
Reply = Callable[[str, FLModel], Shareable]
"""What the app of a site returns for a model."""


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """Return the folder of an app in a workspace of its own, where no other test has left code."""
    folder = tmp_path / "workspace" / "job" / "app"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(autouse=True)
def bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests that come later write bytecode as before; executors stop it."""
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", os.environ.get("PYTHONDONTWRITEBYTECODE", ""))


class App(Executor):
    """An app's executor."""

    def __init__(self, reply: Reply) -> None:
        super().__init__()
        self.reply = reply
        self.seen: list[tuple[str, Any, dict[str, Any]]] = []

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        model = FLModelUtils.from_shareable(shareable)
        self.seen.append((task_name, model.current_round, dict(model.meta)))
        return self.reply(fl_ctx.get_identity_name(), model)


class Engine:
    """What components need of NVFlare's engine."""

    def __init__(self) -> None:
        self.handlers: list[Any] = []
        self.widgets: dict[str, Any] = {}
        self.aux_runner, self.object_streamer = SimpleNamespace(topic_table={}), None
        core_cell = SimpleNamespace(add_incoming_filter=lambda *_given: None)
        self.get_cell = lambda: SimpleNamespace(core_cell=core_cell)

    def get_clients(self) -> list[Client]:
        return [Client(site, "token") for site in SITES]

    def fire_event(self, event: str, ctx: FLContext) -> None:
        pass

    def get_component(self, _name: str) -> None:
        return None


def context(site: str, folder: Path) -> FLContext:
    ctx = FLContextManager(engine=Engine(), identity_name=site, job_id="job").new_context()
    config = folder / "config"
    config.mkdir(exist_ok=True)
    (config / "config_fed_client.json").write_text(json.dumps({"executors": [{"args": {"rate": 0.1}}]}))
    (folder / "custom").mkdir(exist_ok=True)
    (folder / "custom" / "client.py").write_text("pass")
    folders = SimpleNamespace(get_app_config_dir=lambda _job: str(config), get_app_dir=lambda _job: str(folder))
    ctx.set_prop(FLContextKey.WORKSPACE_OBJECT, folders, private=True)
    runner = SimpleNamespace(task_router=SimpleNamespace(task_table={}, patterns=[]), running_tasks={})
    ctx.set_prop(FLContextKey.RUNNER, runner, private=True)
    return ctx


class Communicator:
    """NVFlare's communicator: it hands tasks to the executors of sites at once."""

    def __init__(self, executors: dict[str, PrivateExecutor], folder: Path) -> None:
        self.executors, self.folder = executors, folder

    def send(self, task: Task, _ctx: FLContext, targets: list[str], *_more: object) -> None:
        (site,) = targets
        client_task = ClientTask(Client(site, "token"), task)
        client_task.result = self.executors[site].execute(task.name, task.data, context(site, self.folder), Signal())
        task.result_received_cb(client_task=client_task, fl_ctx=_ctx)

    def cancel_task(self, *_task: object) -> None:
        pass

    def get_num_standing_tasks(self) -> int:
        return 0

    def get_client_disconnect_time(self, _site: str) -> None:
        return None


def moved(site: str, model: FLModel, **changes: Any) -> Shareable:  # noqa: ANN401
    step = np.float32(int(site[-1]) / 8)
    params = {name: array + step.astype(array.dtype) for name, array in model.params.items()}
    result = {"params": params, "meta": {"NUM_STEPS_CURRENT_ROUND": 1}, "metrics": {"loss": 1.5}, **changes}
    return FLModelUtils.to_shareable(FLModel(**result))


def controller(
    reply: Reply,
    folder: Path,
    more: Mapping[str, Any] | None = None,
    **private: Any,  # noqa: ANN401
) -> tuple[PrivateFedAvg, dict[str, App]]:
    """Return a controller and the apps of its sites, with more arguments and settings of Coterie."""
    model = {"w": np.zeros(3, np.float32), "count": np.array([5])}
    given = {"num_clients": 4, "num_rounds": 2, "persistor_id": "", "save_filename": ""}
    settings = {"most_examples": 1, **private}
    made = PrivateFedAvg(**{**given, "model": model, "private": settings, **(more or {})})
    saved: list[FLModel] = []
    made.save_model = saved.append
    made.saved = saved
    return made, connect(made, reply, folder)


def connect(run: PrivateRounds, reply: Reply, folder: Path) -> dict[str, App]:
    """Connect a controller with sites, and return their apps."""
    apps = {site: App(reply) for site in SITES}
    run.communicator = Communicator({site: PrivateExecutor(app) for site, app in apps.items()}, folder)
    run.engine, run.fl_ctx, run.abort_signal = Engine(), context("server", folder), Signal()
    return apps


def test_fedavg_runs_unchanged_over_means(home: Path, tmp_path: Path) -> None:
    run, apps = controller(moved, tmp_path, train_metrics={"loss": (0, 3)})
    run.run()
    last = run.saved[-1]
    assert np.allclose(last.params["w"], 2 * 2.5 / 8, atol=1e-5)
    assert last.metrics is not None
    assert last.metrics["loss"] == pytest.approx(1.5, abs=1e-3)
    assert [(task, number) for task, number, _ in apps["site-1"].seen] == [("train", 0), ("train", 1)]
    assert all("nr_aggregated" not in meta for _, _, meta in apps["site-1"].seen)
    with Ledger.open(server_home() / "ledger.sqlite") as ledger:
        assert [set(ledger.revealed(number)) for number in (1, 2)] == [set(SITES)] * 2


def test_a_difference_is_the_same_as_the_whole_model(home: Path, tmp_path: Path) -> None:
    def difference(site: str, model: FLModel) -> Shareable:
        step = np.float32(int(site[-1]) / 8)
        params = {name: np.zeros_like(array) + step.astype(array.dtype) for name, array in model.params.items()}
        return moved(site, model, params=params, params_type=ParamsType.DIFF)

    run, _ = controller(difference, tmp_path)
    run.run()
    assert np.allclose(run.saved[-1].params["w"], 2 * 2.5 / 8, atol=1e-5)


def test_a_mean_without_a_result_leaves_the_model_and_ends_the_run_in_time(home: Path, tmp_path: Path) -> None:
    run, _ = controller(lambda *_: make_reply(ReturnCode.EXECUTION_EXCEPTION), tmp_path, empty_rounds=2)
    with pytest.raises(NothingTrained, match="its app failed"):
        run.run()
    assert np.array_equal(run.saved[-1].params["w"], np.zeros(3))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"params": {"w": [1.0, 2.0, 3.0]}}, "exactly one model"),
        ({"params": {"w": np.zeros(3, np.float32)}}, "lacks the array 'count'"),
        ({"params": {"w": np.zeros(2, np.float32), "count": np.array([5])}}, "in another shape"),
        ({"metrics": {}}, "lacks the metric 'loss'"),
        ({"meta": {"NUM_STEPS_CURRENT_ROUND": "many"}}, "lacks the number 'NUM_STEPS_CURRENT_ROUND'"),
    ],
)
def test_the_server_learns_which_part_of_a_result_is_missing(
    changes: dict[str, Any], reason: str, home: Path, tmp_path: Path
) -> None:
    run, _ = controller(
        lambda site, model: moved(site, model, **changes),
        tmp_path,
        train_metrics={"loss": (0, 3)},
        empty_rounds=1,
    )
    with pytest.raises(NothingTrained, match=reason):
        run.run()


def test_numbers_of_numpy_are_numbers_and_a_missing_number_of_steps_is_one(home: Path, tmp_path: Path) -> None:
    run, _ = controller(
        lambda site, model: moved(site, model, meta={}, metrics={"loss": np.float32(0.5)}),
        tmp_path,
        train_metrics={"loss": (0, 3)},
    )
    run.run()
    assert run.saved[-1].metrics["loss"] == pytest.approx(0.5, abs=1e-3)


class Evaluation(ModelController):
    """A controller of somebody's own, which evaluates a model once."""

    def run(self) -> None:
        model = FLModel(params={"w": np.zeros(3, np.float32)}, current_round=0)
        self.found = self.send_model_and_wait("validate", model)


class PrivateEvaluation(PrivateRounds, Evaluation):
    pass


def test_a_controller_of_ones_own_may_evaluate_in_a_session(home: Path, tmp_path: Path) -> None:
    run = PrivateEvaluation(private={"evaluate_metrics": {"loss": [0, 3]}, "most_examples": 1})
    apps = connect(run, moved, tmp_path)
    run.run()
    assert run.found[0].metrics["loss"] == pytest.approx(1.5, abs=1e-3)
    assert apps["site-2"].seen == [("validate", 0, {})]


def test_tasks_that_cannot_be_summed_and_settings_that_cannot_work_are_named(home: Path, tmp_path: Path) -> None:
    run, _ = controller(moved, tmp_path, {"task_name": "submit_model"})
    with pytest.raises(ConfigError, match="'submit_model' cannot be summed"):
        run.run()
    with pytest.raises(ConfigError, match="aggregation_weights"):
        controller(moved, tmp_path, {"aggregation_weights": {"site-1": 2.0}})
    with pytest.raises(ConfigError, match="privacy"):
        controller(moved, tmp_path, privacy=0)
    with pytest.raises(ConfigError, match="secrecy: no such setting; there are clip, clips, cohort"):
        controller(moved, tmp_path, secrecy=2)
    with pytest.raises(ConfigError, match="numpy arrays"):
        controller(moved, tmp_path, {"model": {"w": [1.0]}})[0].run()
    with pytest.raises(ConfigError, match="once"):
        PrivateExecutor(PrivateExecutor(App(moved)))


def test_a_site_refuses_tasks_that_are_not_coteries(home: Path, tmp_path: Path) -> None:
    app = App(moved)
    plain = FLModelUtils.to_shareable(FLModel(params={"w": np.zeros(3)}))
    answer = PrivateExecutor(app).execute("train", plain, context("site-1", tmp_path), Signal())
    assert decode(answer[KEY], Answer, "site-1").refusal == "plain"
    assert app.seen == []


def test_metrics_that_an_app_logs_stay_on_its_site(home: Path, tmp_path: Path) -> None:
    class Sender(FedEventRunner):
        def __init__(self) -> None:
            super().__init__()
            self.sent: list[Shareable] = []

        def fire_and_forget_request(self, request: Shareable, *_more: object, **_named: object) -> None:
            self.sent.append(request)

    def fire(*handlers: Any) -> int:  # noqa: ANN401
        sender, ctx = Sender(), context("site-1", tmp_path)
        ctx.set_prop(FLContextKey.EVENT_SCOPE, EventScope.FEDERATION, private=True, sticky=False)
        ctx.set_prop(FLContextKey.EVENT_DATA, Shareable({"train_loss": 0.3}), private=True, sticky=False)
        fire_event("fed.analytix_log_stats", [*handlers, sender], ctx)
        return len(sender.sent)

    assert fire(App(moved)) == 1  # without Coterie they leave
    assert fire(PrivateExecutor(App(moved)), App(moved)) == 0


def test_the_privacy_policy_of_a_site_releases_only_answers_of_coterie(home: Path, tmp_path: Path) -> None:
    (tmp_path / "privacy.json").write_text(POLICY)
    site = SimpleNamespace(get_site_privacy_file_path=lambda: str(tmp_path / "privacy.json"))
    manager = create_privacy_manager(site, names_only=False)
    scope = manager.get_scope(None)
    (policy,), (of_data,) = scope.task_result_filters["out"], scope.task_data_filters["out"]
    assert isinstance(policy, PrivateResults)
    assert isinstance(of_data, PrivateResults)
    assert isinstance(manager.components["coterie"], PrivateJobs)
    ctx = context("site-1", tmp_path)
    answer = Shareable({KEY: encode(Answer(b"masked"))})
    assert policy.process(answer, ctx)[KEY] == answer[KEY]
    assert policy.process(make_reply(ReturnCode.EXECUTION_EXCEPTION), ctx)
    quoting = policy.process(make_reply("row 17 is Ann's", {"row": 17}), ctx)
    assert (quoting.get_return_code(), quoting.get_header("row")) == (ReturnCode.EXECUTION_EXCEPTION, None)
    plain = FLModelUtils.to_shareable(FLModel(params={"w": np.zeros(3)}))
    for blocked in (plain, Shareable({KEY: b"\xc1"}), Shareable({KEY: answer[KEY], "model": 1})):
        with pytest.raises(ContentBlockedException, match="policy of this site"):
            policy.process(blocked, ctx)


def test_the_components_of_a_site_are_built_by_nvflare() -> None:
    built = [load_class(one["path"])() for one in json.loads(RESOURCES)["components"]]
    assert [type(one) for one in built] == [PrivateJobs, PrivateDeployer]


def test_a_job_description_has_coteries_components_and_none_of_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("client.py").write_text("import coterie.errors\n")
    job = FedJob(name="moves", min_clients=2)
    private = {"privacy": 3, "train_metrics": {"loss": [0, 3]}}
    job.to_server(PrivateFedAvg(num_clients=4, num_rounds=2, private=private, train_timeout=60))
    job.to_clients(PrivateRunner(ScriptRunner(script="client.py", script_args="--rate 0.1")))
    job.export_job(str(tmp_path / "jobs"))
    (app,) = (path for path in (tmp_path / "jobs" / "moves").iterdir() if path.is_dir())
    (workflow,) = json.loads((app / "config" / "config_fed_server.json").read_text())["workflows"]
    assert workflow["path"] == "coterie.transports.nvflare.controller.PrivateFedAvg"
    assert workflow["args"] == {"num_clients": 4, "num_rounds": 2, "private": private, "train_timeout": 60, **UNSET}
    (outer,) = json.loads((app / "config" / "config_fed_client.json").read_text())["executors"]
    assert outer["tasks"] == ["*"]
    assert outer["executor"]["path"] == "coterie.transports.nvflare.executor.PrivateExecutor"
    inner = outer["executor"]["args"]["executor"]
    assert inner["path"].endswith("ClientAPIExecutor")
    assert inner["args"]["task_script_args"] == "--rate 0.1"
    assert sorted(path.name for path in (app / "custom").rglob("*.py")) == ["client.py"]


def refusal_of(executor: PrivateExecutor, ctx: FLContext) -> str | None:
    hello = NodeMessage("hello", 7, "train", "1", 0.0, 60.0)
    answer = executor.execute(TASK, Shareable({KEY: encode(hello)}), ctx, Signal())
    return decode(answer[KEY], Answer, "site-1").refusal


def test_files_that_an_app_writes_while_running_are_not_part_of_it(home: Path, tmp_path: Path) -> None:
    executor, ctx = PrivateExecutor(App(moved)), context("site-1", tmp_path)
    before = read_app(tmp_path, tmp_path / "config")
    executor.handle_event(EventType.ABOUT_TO_START_RUN, ctx)
    (tmp_path / "custom" / "checkpoint.pt").write_bytes(b"a model")
    assert executor._read_app(ctx) == before
    assert PrivateExecutor(App(moved))._read_app(ctx) != before


def test_an_app_that_came_with_bytecode_stays_refused_if_it_deletes_it(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    executor, ctx = PrivateExecutor(App(moved)), context("site-1", tmp_path)
    assert refusal_of(PrivateExecutor(App(moved)), ctx) is None
    bytecode = tmp_path / "custom" / "client.pyc"
    bytecode.write_bytes(b"")
    executor.handle_event(EventType.ABOUT_TO_START_RUN, ctx)
    bytecode.unlink()
    assert [refusal_of(executor, ctx) for _ in range(2)] == ["settings"] * 2
    assert "has bytecode" in caplog.text


def test_an_allowed_plain_evaluation_sends_only_its_metrics(home: Path, tmp_path: Path) -> None:
    """Many scripts train in every task, and send a model beside the metrics."""
    folder = node_home("site-1")
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    (folder / "node.toml").write_text('allow = "evaluate"\n')

    def train_always(site: str, model: FLModel) -> Shareable:
        found = FLModel(params_type=ParamsType.FULL, params={"w": np.ones(3)}, metrics={"accuracy": 0.9})
        return FLModelUtils.to_shareable(found)

    task = FLModelUtils.to_shareable(FLModel(params_type=ParamsType.FULL, params={"w": np.zeros(3, np.float32)}))
    executor = PrivateExecutor(App(train_always))
    reply = FLModelUtils.from_shareable(executor.execute("validate", task, context("site-1", tmp_path), Signal()))
    assert (reply.params, reply.metrics) == (None, {"accuracy": 0.9})


def test_public_values_of_an_executor_do_not_leave_with_the_answer(home: Path, tmp_path: Path) -> None:
    class Open(App):
        def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
            fl_ctx.set_prop("train_loss", 0.3125, private=False, sticky=False)
            return super().execute(task_name, shareable, fl_ctx, abort_signal)

    ctx, model = context("site-1", tmp_path), {"w": np.zeros(3, np.float32)}
    PrivateExecutor(Open(moved))._run("train", model, Work.of(model, {}, Rounds()), ctx, Signal())
    assert "train_loss" not in ctx.get_all_public_props()
