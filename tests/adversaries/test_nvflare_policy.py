"""A server submits a job without Coterie to a site whose policy allows only Coterie's answers to leave.

All classes of these jobs are on the list that NVFlare comes with. In such workflows clients send models to each other,
which are not results of tasks.
"""

import argparse
import io
import json
import sys
import zipfile
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs coterie[nvflare]")

from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import ContentBlockedException
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FilterKey, FLContextKey, ReturnCode, SiteType
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.apis.utils.task_utils import apply_filters
from nvflare.apis.workspace import Workspace
from nvflare.fuel.common.excepts import ComponentNotAuthorized
from nvflare.fuel.sec.authz import AuthorizationService
from nvflare.private.fed.app.default_app_validator import DefaultAppValidator
from nvflare.private.fed.app.fl_conf import FLClientStarterConfiger
from nvflare.private.fed.client.client_engine import ClientEngine
from nvflare.private.fed.client.client_engine_executor_spec import TaskAssignment
from nvflare.private.fed.utils.app_authz import AppAuthzService
from nvflare.private.fed.utils.fed_utils import authorize_build_component
from nvflare.private.privacy_manager import Scope
from nvflare.security.security import FLAuthorizer
from tests.support import nvflare_jobs
from tests.support.homes import home as home
from tests.support.nvflare_jobs import PRIVATE, TRAINER, Engine, configured, deploy, job, refusal, started
from tests.support.nvflare_jobs import site_environment as site_environment

from coterie.transports.nvflare import components

pytestmark = pytest.mark.usefixtures("site_environment")

CCWF = "nvflare.app_common.ccwf"
FILTER = {"path": "coterie.transports.nvflare.filters.PrivateResults"}
RESULTS: dict[str, Any] = {"name": "coterie", "task_result_filters": [FILTER]}
DATA: dict[str, Any] = {"task_data_filters": [{**FILTER, "direction": "out"}]}
JOBS = {"components": [{"id": "coterie", "path": "coterie.transports.nvflare.filters.PrivateJobs"}]}
CONTROLLERS: dict[str, dict[str, Any]] = {
    "CyclicClientController": {"shareable_generator_id": "generator"},
    "SwarmClientController": {
        "shareable_generator_id": "generator",
        "aggregator_id": "aggregator",
    },
    "CrossSiteEvalClientController": {"submit_model_task_name": "train", "validation_task_name": "train"},
}


def policy(folder: Path, scope: dict[str, Any], **more: Any) -> Path:  # noqa: ANN401 - of any type
    path = folder / "privacy.json"
    path.write_text(json.dumps({"default_scope": "coterie", "scopes": [scope], **more}))
    return path


def workflow(folder: Path, controller: str) -> Path:
    """Deploy a job in which clients control a workflow, and return the folder of its app."""
    args = {"task_name_prefix": "wf", "persistor_id": "persistor", **CONTROLLERS[controller]}
    trainer = {"path": f"{CCWF}.comps.np_trainer.NPTrainer", "args": {"delta": 0.375}}
    described = {
        "format_version": 2,
        "executors": [
            {"tasks": ["train"], "executor": trainer},
            {"tasks": ["wf_*"], "executor": {"path": f"{CCWF}.{controller}", "args": args}},
        ],
        "components": [
            {"id": "persistor", "path": f"{CCWF}.comps.np_file_model_persistor.NPFileModelPersistor"},
            {"id": "generator", "path": f"{CCWF}.comps.simple_model_shareable_generator.SimpleModelShareableGenerator"},
            {
                "id": "aggregator",
                "path": "nvflare.app_common.aggregators.intime_accumulate_model_aggregator."
                "InTimeAccumulateWeightedAggregator",
            },
        ],
    }
    return deploy(folder / "site-1", described)


@pytest.mark.parametrize("defended", [False, True])
@pytest.mark.parametrize("controller", CONTROLLERS)
def test_a_workflow_that_clients_control(controller: str, defended: bool, tmp_path: Path) -> None:
    """Without the defence, the controller accepts tasks of other clients as soon as the job starts."""
    engine = started(workflow(tmp_path, controller), policy(tmp_path, RESULTS | DATA, **(JOBS if defended else {})))
    route = engine.runner.find_executor("wf_learn")
    route.asked_to_stop = True  # so that its thread ends
    assert (route.engine is None) == defended
    ctx = engine.new_context()
    reply = engine.runner._process_task(TaskAssignment("train", "1", model_at_zero()), ctx)
    assert (reply.get_return_code() == ReturnCode.UNSAFE_JOB) == defended


def model_at_zero() -> Shareable:
    return DXO(DataKind.WEIGHTS, {"numpy_key": np.zeros((3, 3), np.float32)}).to_shareable()


@pytest.mark.parametrize("defended", [False, True])
def test_a_model_that_is_sent_as_data_of_a_task(defended: bool, tmp_path: Path) -> None:
    engine = Engine(
        workflow(tmp_path, "CyclicClientController"), policy(tmp_path, RESULTS | (DATA if defended else {}))
    )
    model, ctx = model_at_zero(), engine.new_context()
    result = engine.runner.find_executor("train").execute("train", model, ctx, Signal())
    with pytest.raises(ContentBlockedException, match="policy of this site"):
        apply_filters(Scope.TASK_RESULT_FILTERS_NAME, result, ctx, {}, "train", FilterKey.OUT)
    cyclic = engine.runner.find_executor("wf_learn")
    cyclic.start_run(ctx)
    cyclic.asked_to_stop = True
    cyclic.config = {"cwf.clients": ["site-1", "site-2"], "num_rounds": 1}
    for name, value in {"num_rounds": 1, "current_round": 0, "cwf.client_order": ["site-1", "site-2"]}.items():
        model.set_header(name, value)
    cyclic.do_learn_task("train", model, ctx, Signal())
    left = [from_shareable(request).data["numpy_key"].max() for request in engine.sent]
    assert left == ([] if defended else [0.375])


def test_a_private_job_runs_under_the_policy(tmp_path: Path) -> None:
    engine = started(deploy(tmp_path / "site-1", job("x")), policy(tmp_path, RESULTS | DATA, **JOBS))
    assert refusal(engine) is None
    assert not engine.new_context().is_job_unsafe()


@pytest.mark.parametrize("judged", [False, True])
def test_a_job_that_cannot_be_judged_does_not_run(
    judged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVFlare continues a job if a component raises an exception in an event."""

    def fail(_part: object) -> bool:
        raise AttributeError

    if not judged:
        monkeypatch.setattr(components, "_is_accepted", fail)
    engine = started(deploy(tmp_path / "site-1", job("x")), policy(tmp_path, RESULTS | DATA, **JOBS))
    assert engine.new_context().is_job_unsafe() != judged
    assert refusal(engine) == (None if judged else "settings")


@pytest.fixture
def code_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forbid code in all jobs, as an operator does."""
    monkeypatch.setattr(AppAuthzService, "app_validator", DefaultAppValidator(SiteType.CLIENT))
    policy = {"format_version": "1.0", "permissions": {"project_admin": {"submit_job": "any"}}}
    monkeypatch.setattr(AuthorizationService, "the_authorizer", FLAuthorizer("org", policy))


class Site:
    """NVFlare's workspace of a site; the list of classes is the one that NVFlare comes with, if none is given."""

    def __init__(self, folder: Path, **resources: object) -> None:
        for name in ("startup", "local"):
            (folder / name).mkdir(parents=True)
        server = {"name": "p", "identity": "server", "service": {"scheme": "grpc", "target": "host:1"}}
        start = {"format_version": 2, "servers": [server], "client": {"fqsn": "site-1", "is_leaf": True}}
        (folder / "startup" / "fed_client.json").write_text(json.dumps(start))
        (folder / "local" / "resources.json").write_text(json.dumps({"format_version": 2, "client": {}, **resources}))
        self.workspace = Workspace(str(folder), "site-1")
        kept = {"new_context": FLContext, "get_component": self.begin("").components.get}
        self.engine = SimpleNamespace(args=argparse.Namespace(workspace=str(folder)), **kept)

    def begin(self, job: str) -> FLClientStarterConfiger:
        """Begin the process of a job, or NVFlare's process of the site, which has no job."""
        given = argparse.Namespace(
            job_id=job, client_name="site-1", sp_scheme="grpc", sp_target="host:1", parent_url="", set=[]
        )
        given.parent_conn_sec, given.workspace, given.fed_client = "clear", self.workspace.root_dir, "fed_client.json"
        begun = FLClientStarterConfiger(self.workspace, given, ["uid=site-1", "secure_train=false"])
        begun.configure()
        return begun

    def deploy(self, job: str, files: dict[str, str]) -> str:
        """Deploy an app as the server asks for it; return the refusal of the site, if it refuses."""
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as app:
            for name, content in files.items():
                app.writestr(name, content)
        meta = {"job_id": job, "submitter_name": "admin", "submitter_org": "org", "submitter_role": "project_admin"}
        return str(ClientEngine.deploy_app(self.engine, "app", job, meta, "site-1", packed.getvalue()))

    def delete(self, job: str) -> None:
        """Delete a job as the server asks for it."""
        ClientEngine.delete_run(self.engine, job)

    def build(self, job: str, handlers: list[FLComponent]) -> Any:  # noqa: ANN401 - NVFlare has no types
        """Build a job in a process that has begun."""
        ctx = FLContext()
        ctx.set_prop(FLContextKey.WORKSPACE_OBJECT, self.workspace, private=True)
        ctx.set_prop(FLContextKey.CURRENT_JOB_ID, job, private=True)
        authorize = partial(authorize_build_component, fl_ctx=ctx, event_handlers=handlers)
        return configured(Path(self.workspace.get_app_dir(job)), "site-1", authorize)


@pytest.mark.parametrize("defended", [False, True])
def test_a_policy_that_is_deleted_while_a_job_is_built(
    defended: bool, tmp_path: Path, site_environment: None, code_is_forbidden: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVFlare reads the policy after it has built the job. A job with the name of its folder deletes it."""
    site = Site(tmp_path / "site-1", **(JOBS if defended else {}))
    path = policy(tmp_path / "site-1" / "local", RESULTS | DATA, **JOBS)
    trainer = {"tasks": ["train"], "executor": {"path": TRAINER, "args": {"delta": 0.375}}}
    described = json.dumps({"format_version": 2, "executors": [trainer], "components": []})
    assert not site.deploy("job", {"config/config_fed_client.json": described})
    handlers = site.begin("job").handlers

    def build_and_delete(app: Path, _site: str) -> Any:  # noqa: ANN401 - NVFlare has no types
        built = site.build("job", handlers)
        assert not site.deploy("local", {"config/config_fed_client.json": "{}"})
        return built

    monkeypatch.setattr(nvflare_jobs, "configured", build_and_delete)
    if defended:
        with pytest.raises(ComponentNotAuthorized, match="allows only PrivateExecutor"):
            Engine(Path(site.workspace.get_app_dir("job")), path)
        return
    engine = Engine(Path(site.workspace.get_app_dir("job")), path)
    for event in (EventType.ABOUT_TO_START_RUN, EventType.START_RUN):
        engine.fire_event(event, engine.new_context())
    ctx = engine.new_context()
    ctx.set_peer_context(FLContextManager(identity_name="server", job_id="job").new_context())
    reply = engine.runner._process_task(TaskAssignment("train", "1", model_at_zero()), ctx)
    assert from_shareable(reply).data["numpy_key"].max() == 0.375


@pytest.mark.parametrize("defended", [False, True])
def test_code_of_a_job_that_is_not_allowed_while_nvflare_decides(
    defended: bool, tmp_path: Path, site_environment: None, code_is_forbidden: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVFlare unpacks an app, and notes that it brings code, before it decides whether that is allowed.

    A server deploys a job again while its process starts, so the process may build the app at that moment.
    """
    site, ran = Site(tmp_path / "site-1", **(JOBS if defended else {})), tmp_path / "ran"
    handlers = site.begin("job").handlers
    one = {"tasks": ["*"], "executor": {"path": PRIVATE, "args": {"executor": {"path": "code_of_job.Trainer"}}}}
    brought = {
        "config/config_fed_client.json": json.dumps({"format_version": 2, "executors": [one], "components": []}),
        "custom/code_of_job.py": f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n"
        "from nvflare.app_common.np.np_trainer import NPTrainer as Trainer\n",
    }
    monkeypatch.syspath_prepend(site.workspace.get_app_custom_dir("job"))
    decide = AppAuthzService.authorize_app_info

    def build_meanwhile(**asked: Any) -> tuple[bool, str]:  # noqa: ANN401 - of any type
        with nullcontext() if not defended else pytest.raises(ComponentNotAuthorized, match="brings code"):
            site.build("job", handlers)
        sys.modules.pop("code_of_job", None)
        return decide(**asked)  # type: ignore[no-any-return]

    monkeypatch.setattr(AppAuthzService, "authorize_app_info", build_meanwhile)
    assert "BYOC not permitted" in site.deploy("job", brought)
    assert ran.exists() is not defended


def test_a_private_job_is_built_under_the_policy_of_the_site(
    tmp_path: Path, site_environment: None, code_is_forbidden: None
) -> None:
    site = Site(tmp_path / "site-1", class_allow_list=[PRIVATE, TRAINER], **JOBS)
    assert not site.deploy("job", {"config/config_fed_client.json": json.dumps(job("x"))})
    assert site.build("job", site.begin("job").handlers).executors


PLAIN = {"config/config_fed_client.json": "{}"}
DEPLOYER = {"components": [{"id": "app_deployer", "path": "coterie.transports.nvflare.deployer.PrivateDeployer"}]}


@pytest.mark.parametrize("defended", [False, True])
def test_a_job_with_the_name_of_a_folder_of_the_operator(
    defended: bool, tmp_path: Path, code_is_forbidden: None
) -> None:
    site = Site(tmp_path / "site-1", **(DEPLOYER if defended else {}))
    assert ("deletes none" in site.deploy("local", PLAIN)) is defended
    assert (tmp_path / "site-1" / "local" / "resources.json").exists() is defended


@pytest.mark.parametrize("allow_code", [False, True])
@pytest.mark.parametrize("defended", [False, True])
def test_an_app_that_is_replaced_while_its_job_starts(
    defended: bool, allow_code: bool, tmp_path: Path, code_is_forbidden: None
) -> None:
    """The server deploys the job again, also after it had the site delete its folder."""
    deployer = {**DEPLOYER["components"][0], "args": {"allow_code": allow_code}}
    site = Site(tmp_path / "site-1", components=[deployer] if defended else [])
    described = Path(site.workspace.get_app_config_dir("job-1")) / "config_fed_client.json"
    assert not site.deploy("job-1", PLAIN)
    for number in range(2):
        refusal = site.deploy("job-1", {"config/config_fed_client.json": f'{{"rate": {number}}}'})
        assert ("deploys a job once" in refusal) is defended
        assert (described.exists() and "rate" in described.read_text()) is not defended
        site.delete("job-1")
        assert not described.exists()


@pytest.mark.parametrize("defended", [False, True])
@pytest.mark.parametrize("name", ["custom/code.py", "./custom/code.py"])
def test_code_that_is_not_allowed_is_not_unpacked_in_the_workspace(
    name: str, defended: bool, tmp_path: Path, code_is_forbidden: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path / "site-1", **(DEPLOYER if defended else {}))
    decide, there = AppAuthzService.authorize_app_info, []

    def look(**asked: Any) -> tuple[bool, str]:  # noqa: ANN401 - of any type
        there.append((Path(site.workspace.get_app_custom_dir("job-1")) / "code.py").exists())
        return decide(**asked)  # type: ignore[no-any-return]

    monkeypatch.setattr(AppAuthzService, "authorize_app_info", look)
    assert ("brings code" if defended else "BYOC not permitted") in site.deploy("job-1", {**PLAIN, name: ""})
    assert there == ([] if defended else [True])


def test_the_deployer_deploys_a_private_job(tmp_path: Path, site_environment: None, code_is_forbidden: None) -> None:
    site = Site(tmp_path / "site-1", class_allow_list=[PRIVATE, TRAINER], **DEPLOYER)
    assert not site.deploy("job-1", {"config/config_fed_client.json": json.dumps(job("x"))})
    assert site.build("job-1", []).executors
