"""A server lists ready-made components of NVFlare in a job, which send what a site computes around Coterie.

All of them are classes of NVFlare; the job has no code of its own. Promises, in docs/nvflare.md: "Federated events stay
on their site (``flare.log``, ``SummaryWriter``)", and a policy "that lets nothing but Coterie's answers out".
"""

import json
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs coterie[nvflare]")

from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE, AnalyticsDataType
from nvflare.apis.client import Client
from nvflare.apis.client_engine_spec import ClientEngineSpec
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import ContentBlockedException
from nvflare.apis.fl_constant import FedEventHeader, FilterKey, FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.apis.utils.analytix_utils import create_analytic_dxo, send_analytic_dxo
from nvflare.apis.utils.task_utils import apply_filters
from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST
from nvflare.private.event import fire_event
from nvflare.private.fed.app.fl_conf import create_privacy_manager
from nvflare.private.privacy_manager import Scope
from nvflare.widgets.fed_event import ClientFedEventRunner
from tests.support.homes import home as home
from tests.support.nvflare_jobs import configured, deploy, job
from tests.support.nvflare_jobs import site_environment as site_environment

from coterie.deployment.credentials import Introduction
from coterie.transports.nvflare.job_config import read_app
from coterie.transports.nvflare.messages import KEY, TASK, Answer, NodeMessage, decode, encode
from coterie.transports.nvflare.request import SiteApp

CONVERT = {
    "id": "convert",
    "path": "nvflare.app_common.widgets.convert_to_fed_event.ConvertToFedEvent",
    "args": {"events_to_convert": [ANALYTIC_EVENT_TYPE]},
}
SENDER = {
    "id": "sender",
    "path": "nvflare.widgets.fed_event.ClientFedEventRunner",
    "args": {"topic": "metrics"},
}


class Engine(ClientEngineSpec):
    """NVFlare's engine of a job on a site; what goes out is kept."""

    def __init__(self, app: Path, made: Any) -> None:  # noqa: ANN401 - NVFlare has no types
        self.made, self.topics = made, set[str]()
        self.handlers = [*made.runner_config.handlers, ClientFedEventRunner()]  # the order of ClientRunManager
        self.all_clients = [Client("site-1", "token"), Client("site-2", "token")]
        self.sent: list[Shareable] = []
        folders = SimpleNamespace(
            get_app_dir=lambda _job: str(app),
            get_app_config_dir=lambda _job: str(app / "config"),
            get_run_dir=lambda _job: str(app.parent),
        )
        kept = {FLContextKey.WORKSPACE_OBJECT: folders, ReservedKey.RUN_ABORT_SIGNAL: Signal()}
        self.contexts = FLContextManager(engine=self, identity_name="site-1", job_id="job", private_stickers=kept)

    def fire_event(self, event_type: str, fl_ctx: FLContext) -> None:
        fire_event(event_type, self.handlers, fl_ctx)

    def new_context(self) -> FLContext:
        return self.contexts.new_context()

    def add_component(self, component_id: str, component: object) -> None:
        raise NotImplementedError

    def get_component(self, component_id: str) -> object:
        return self.made.components.get(component_id)

    def register_aux_message_handler(self, topic: str, message_handle_func: object) -> None:
        if topic in self.topics:
            raise ValueError(f"handler already registered for topic {topic}")
        self.topics.add(topic)

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


def started(app: Path) -> Engine:
    engine = Engine(app, configured(app, "site-1"))
    for event in (EventType.ABOUT_TO_START_RUN, EventType.START_RUN):
        engine.fire_event(event, engine.new_context())
    return engine


def hello(engine: Engine) -> str | None:
    """Return the word by which the private executor refuses a session, or None if it takes part."""
    private = engine.made.runner_config.task_router.route(TASK)
    data = Shareable({KEY: encode(NodeMessage("hello", 7, "train", "1", 0.0, 60.0))})
    return decode(private.execute(TASK, data, engine.new_context(), Signal())[KEY], Answer, "site-1").refusal


@pytest.mark.parametrize("listed", [False, True])
def test_metrics_stay_on_their_site_if_a_job_lists_a_sender_of_events(
    listed: bool, home: Path, tmp_path: Path, site_environment: None
) -> None:
    """The job lists NVFlare's own sender of events before its executor, so it sends before ``PrivateExecutor`` acts."""
    described = job("x")
    components = [*([SENDER] if listed else []), CONVERT]
    app = deploy(tmp_path / "site-1", {"format_version": 2, "components": components, **_without(described)})
    engine = started(app)
    script = engine.made.executors[0].executor.executor  # it logs as `SummaryWriter().add_scalar` does in a script
    dxo = create_analytic_dxo("train_loss", 0.3125, AnalyticsDataType.SCALAR)
    send_analytic_dxo(script, dxo, engine.new_context())
    heard = [from_shareable(event).data["track_value"] for event in engine.sent]
    assert heard == [] or hello(engine) == "settings", f"the server heard {heard} of site-1 alone"
    assert heard == []


def _without(described: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in described.items() if key not in ("format_version", "components")}


def introduced(engine: Engine) -> bytes:
    """Return the digest of the app that the site tells the server when it introduces itself."""
    private = engine.made.runner_config.task_router.route(TASK)
    data = Shareable({KEY: encode(NodeMessage("hello", 7, "train", "1", 0.0, 60.0))})
    answer = decode(private.execute(TASK, data, engine.new_context(), Signal())[KEY], Answer, "site-1")
    return msgspec.msgpack.decode(answer.payload, type=Introduction).run_config


def fire_from_server(engine: Engine, event: str) -> None:
    """Send a site an event as the server's part of NVFlare does, and wait until the site has handled it."""
    handled = threading.Event()
    request = Shareable()
    headers = {
        FedEventHeader.EVENT_TYPE: event,
        FedEventHeader.TIMESTAMP: 1.0,
        FedEventHeader.EVENT_ID: event,
    }
    for name, value in headers.items():
        request.set_header(name, value)
    request.set_peer_props({ReservedKey.IDENTITY_NAME: "server"})
    receiver = engine.handlers[-1]
    assert isinstance(receiver, ClientFedEventRunner)
    receiver.abort_signal = Signal()
    fire = engine.fire_event

    def noted(event_type: str, fl_ctx: FLContext) -> None:
        fire(event_type, fl_ctx)
        handled.set()

    engine.fire_event = noted  # type: ignore[method-assign]
    receiver._receive("fed.event", request, engine.new_context())
    assert handled.wait(10)
    receiver.abort_signal.trigger(True)
    engine.fire_event = fire  # type: ignore[method-assign]


def test_the_server_does_not_choose_when_a_site_reads_its_app(
    home: Path, tmp_path: Path, site_environment: None
) -> None:
    """An event of the server has the type of one that a site reads its app at: what a script wrote is read, too.

    Promise, in docs/nvflare.md: "A site reads the folder before the app starts, so files that a script writes there
    later do not count." The digest goes to the server in the clear, and it knows all other files of the job. Here a
    script notes its number of examples, which is masked otherwise; the server finds it by trying all numbers.
    """
    app = deploy(tmp_path / "site-1", job("x"))
    engine = started(app)
    before = introduced(engine)
    known = read_app(app, app / "config")
    assert before == known.digest
    (app / "custom").mkdir()
    (app / "custom" / "examples.txt").write_text("4817\n")
    assert introduced(engine) == before  # nobody asks the site to read again
    fire_from_server(engine, EventType.ABOUT_TO_START_RUN)
    told = introduced(engine)
    guesses = (
        (number, SiteApp(known.config, {**known.files, "custom/examples.txt": sha256(b"%d\n" % number).hexdigest()}))
        for number in range(10_000)
    )
    assert [number for number, guess in guesses if guess.digest == told] == []
    assert told == before


CCWF = "nvflare.app_common.ccwf"
CYCLE: dict[str, Any] = {
    "format_version": 2,
    "executors": [
        {"tasks": ["train"], "executor": {"path": f"{CCWF}.comps.np_trainer.NPTrainer", "args": {"delta": 0.375}}},
        {
            "tasks": ["cyclic_*"],
            "executor": {
                "path": f"{CCWF}.CyclicClientController",
                "args": {"task_name_prefix": "cyclic", "shareable_generator_id": "generator"},
            },
        },
    ],
    "components": [
        {"id": "persistor", "path": f"{CCWF}.comps.np_file_model_persistor.NPFileModelPersistor"},
        {
            "id": "generator",
            "path": f"{CCWF}.comps.simple_model_shareable_generator.SimpleModelShareableGenerator",
        },
    ],
}
POLICY = {
    "default_scope": "coterie",
    "scopes": [
        {
            "name": "coterie",
            "task_result_filters": [{"path": "coterie.transports.nvflare.filters.PrivateResults"}],
        }
    ],
}


def _paths(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (child for key, child in value.items() if key == "path")
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _paths(child)


def test_the_policy_of_a_site_stops_a_workflow_in_which_clients_send_models_to_each_other(
    home: Path, tmp_path: Path
) -> None:
    """Every class of this job is on the list that NVFlare comes with; the trainer stands for the operator's own."""
    assert set(_paths(CYCLE)) <= set(DEFAULT_CLASS_ALLOW_LIST)
    app = deploy(tmp_path / "site-1", CYCLE)
    (tmp_path / "privacy.json").write_text(json.dumps(POLICY))
    site = SimpleNamespace(get_site_privacy_file_path=lambda: str(tmp_path / "privacy.json"))
    scope = create_privacy_manager(site, names_only=False).get_scope(None)
    engine = Engine(app, configured(app, "site-1"))
    router = engine.made.runner_config.task_router
    runner = SimpleNamespace(find_executor=router.route, task_data_filters={}, task_result_filters={})
    engine.contexts.private_stickers.update({FLContextKey.RUNNER: runner, FLContextKey.SCOPE_OBJECT: scope})
    ctx = engine.new_context()
    model = DXO(DataKind.WEIGHTS, {"numpy_key": np.zeros((3, 3), np.float32)}).to_shareable()

    # The policy is in force: the result of a task is blocked.
    plain = router.route("train").execute("train", model, ctx, Signal())
    with pytest.raises(ContentBlockedException, match="policy of this site"):
        apply_filters(Scope.TASK_RESULT_FILTERS_NAME, plain, ctx, {}, "train", FilterKey.OUT)

    cyclic = router.route("cyclic_learn")
    cyclic.start_run(ctx)
    try:
        cyclic.config = {"cwf.clients": ["site-1", "site-2"], "num_rounds": 1}
        model.set_header("num_rounds", 1)
        model.set_header("current_round", 0)
        model.set_header("cwf.client_order", ["site-1", "site-2"])
        cyclic.do_learn_task("train", model, ctx, Signal())
    finally:
        cyclic.asked_to_stop = True
    left = [from_shareable(request).data["numpy_key"].max() for request in engine.sent]
    assert left == [], f"the model that site-1 trained left as it is: {left}"
