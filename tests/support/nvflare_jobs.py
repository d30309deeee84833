"""Apps of NVFlare's jobs in the workspace of a site, read by Coterie, built and started by NVFlare."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from nvflare.apis.client import Client
from nvflare.apis.client_engine_spec import ClientEngineSpec
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.private.aux_runner import AuxRunner
from nvflare.private.event import fire_event
from nvflare.private.fed.app.fl_conf import create_privacy_manager
from nvflare.private.fed.client.client_json_config import ClientJsonConfigurator
from nvflare.private.fed.client.client_runner import ClientRunner
from nvflare.private.privacy_manager import PrivacyService
from nvflare.widgets.fed_event import ClientFedEventRunner
from nvflare.widgets.info_collector import InfoCollector
from nvflare.widgets.widget import Widget, WidgetID

from coterie.deployment.credentials import Introduction
from coterie.transports.nvflare.job_config import read_app
from coterie.transports.nvflare.messages import KEY, TASK, Answer, NodeMessage, decode, encode
from coterie.transports.nvflare.request import SiteApp

PRIVATE = "coterie.transports.nvflare.executor.PrivateExecutor"
TRAINER = "nvflare.app_common.np.np_trainer.NPTrainer"
STREAMER = "nvflare.app_common.logging.job_log_streamer.JobLogStreamer"
FILE = "config_fed_client.json"


def job(argument: object, *components: dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the client's configuration of a job whose trainer gets an argument."""
    inner = {"path": TRAINER, "args": {"model_name": argument}}
    executor = {"tasks": ["*"], "executor": {"path": PRIVATE, "args": {"executor": inner}}}
    return {"format_version": 2, **more, "executors": [executor], "components": list(components)}


def deploy(site: Path, config: dict[str, Any], name: str = "job") -> Path:
    """Write the app of a job into a site's workspace, and return its folder."""
    app = site / name / "app"
    (app / "config").mkdir(parents=True, exist_ok=True)
    (app / "config" / FILE).write_text(json.dumps(config))
    return app


def read(app: Path) -> SiteApp:
    return read_app(app, app / "config")


def built(app: Path, site: str) -> Any:  # noqa: ANN401 - of any type
    """Return the argument that NVFlare gives to the trainer on a site."""
    return configured(app, site).executors[0].executor.executor._model_name


def configured(app: Path, site: str, authorize: Callable[..., str] | None = None) -> Any:  # noqa: ANN401 - NVFlare has no types
    """Let NVFlare build the app of a job as on a site; ``authorize`` is asked before each component."""
    folders = SimpleNamespace(
        get_app_config_dir=lambda *_: str(app / "config"), get_app_custom_dir=lambda *_: str(app / "custom")
    )
    named = argparse.Namespace(
        job_id="job", sp_scheme="grpc", sp_target="host:1", client_name=site, workspace=str(app.parent), set=[]
    )
    made = ClientJsonConfigurator(
        workspace_obj=folders, config_file_name=str(app / "config" / FILE), args=named, app_root=str(app)
    )
    if authorize is not None:
        made.set_component_build_authorizer(authorize)
    made.configure()
    return made


class Engine(ClientEngineSpec):
    """NVFlare's engine of a job on a site, without its network; it keeps what goes out."""

    def __init__(self, app: Path, policy: Path | None = None) -> None:
        """Build the job, as ``ClientAppRunner`` does, under the policy of a site."""
        self.config = configured(app, "site-1").runner_config
        manager = create_privacy_manager(
            SimpleNamespace(get_site_privacy_file_path=lambda: str(policy or "")), names_only=False
        )
        for name, component in (manager.components or {}).items():
            self.config.add_component(name, component)
        PrivacyService.initialize(manager)
        self.handlers = self.config.handlers
        self.widgets = {WidgetID.INFO_COLLECTOR: InfoCollector(), WidgetID.FED_EVENT_RUNNER: ClientFedEventRunner()}
        self.aux_runner, self.object_streamer = AuxRunner(self), None
        self.all_clients = [Client("site-1", "token"), Client("site-2", "token")]
        self.sent: list[Shareable] = []
        self.received_filters: list[Any] = []
        """The filters by which the job's process changes what it receives."""
        folders = SimpleNamespace(
            get_app_dir=lambda _job: str(app),
            get_app_config_dir=lambda _job: str(app / "config"),
            get_run_dir=lambda _job: str(app.parent),
        )
        self.runner = ClientRunner({}, self.config, "job", self)
        self.handlers += [self.aux_runner, *self.widgets.values(), self.runner]
        kept = {
            FLContextKey.WORKSPACE_OBJECT: folders,
            ReservedKey.RUN_ABORT_SIGNAL: Signal(),
            FLContextKey.RUNNER: self.runner,
            FLContextKey.SCOPE_OBJECT: manager.get_scope(None),
        }
        self.contexts = FLContextManager(engine=self, identity_name="site-1", job_id="job", private_stickers=kept)

    def fire_event(self, event_type: str, fl_ctx: FLContext) -> None:
        fire_event(event_type, self.handlers, fl_ctx)

    def get_cell(self) -> Any:  # noqa: ANN401 - NVFlare has no types
        return SimpleNamespace(
            core_cell=SimpleNamespace(add_incoming_filter=lambda *given: self.received_filters.append(given))
        )

    def new_context(self) -> FLContext:
        return self.contexts.new_context()

    def add_component(self, component_id: str, component: object) -> None:
        raise NotImplementedError

    def get_component(self, component_id: str) -> object:
        return self.config.components.get(component_id)

    def get_widget(self, widget_id: str) -> Widget:
        return self.widgets[widget_id]

    def register_aux_message_handler(self, topic: str, message_handle_func: object) -> None:
        self.aux_runner.register_aux_message_handler(topic, message_handle_func)

    def validate_targets(self, names: list[str]) -> tuple[list[str], list[str]]:
        return names, []

    def fire_and_forget_aux_request(self, request: Shareable, **_more: object) -> None:
        self.sent.append(request)

    def send_aux_request(self, targets: list[str], request: Shareable, **_more: object) -> dict[str, Shareable]:
        self.sent.append(request)
        replies = {name: make_reply("OK") for name in targets}
        for name, reply in replies.items():
            reply.set_peer_context(FLContextManager(identity_name=name, job_id="job").new_context())
        return replies


def started(app: Path, policy: Path | None = None) -> Engine:
    """Start a job on a site."""
    engine = Engine(app, policy)
    for event in (EventType.ABOUT_TO_START_RUN, EventType.START_RUN):
        engine.fire_event(event, engine.new_context())
    return engine


def _greeted(engine: Engine) -> Answer:
    data = Shareable({KEY: encode(NodeMessage("hello", 7, "train", "1", 0.0, 60.0))})
    private = engine.config.task_router.route(TASK)
    return decode(private.execute(TASK, data, engine.new_context(), Signal())[KEY], Answer, "site-1")


def refusal(engine: Engine) -> str | None:
    """Return the word by which the private executor refuses a session, or None if it takes part."""
    return _greeted(engine).refusal


def introduced(engine: Engine) -> bytes:
    """Return the digest of the app that the site tells the server when it introduces itself."""
    return msgspec.msgpack.decode(_greeted(engine).payload, type=Introduction).run_config


@pytest.fixture
def site_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let executors be built as on a site, where tests that come later may write bytecode as before.

    Code of jobs is forgotten afterwards, because a site refuses jobs that use code of others.
    """
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", os.environ.get("PYTHONDONTWRITEBYTECODE", ""))
    monkeypatch.setenv("RATE_OF_SITE", "0.1")
    monkeypatch.setattr(PrivacyService, "manager", None)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if "custom" in Path(getattr(sys.modules[name], "__file__", None) or "").parts:
            del sys.modules[name]
