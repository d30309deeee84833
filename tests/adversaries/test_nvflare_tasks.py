"""A site gets tasks that it did not ask the server for, and tasks with values that members of a session do not compare.

NVFlare takes a task from a message of the server or of any other site of the job, from the moment when it has built the
job. It adds values of the sender to every task.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs coterie[nvflare]")

from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReservedTopic, ReturnCode
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.shareable import ReservedHeaderKey, Shareable
from nvflare.apis.signal import Signal
from tests.support.homes import home as home
from tests.support.nvflare_jobs import TRAINER, Engine, deploy, job, started
from tests.support.nvflare_jobs import site_environment as site_environment
from tests.support.nvflare_sites import Learning, check_update_of_one

from coterie.transports.nvflare import PrivateExecutor, components, executor
from coterie.transports.nvflare.components import Guard
from coterie.transports.nvflare.messages import KEY, TASK, Answer, NodeMessage, Rounds, Work, decode, encode


def from_peer(sender: str, **values: object) -> FLContext:
    """Return the context that NVFlare shows a site of the sender of a message."""
    peer = FLContext()
    peer.set_public_props({ReservedKey.IDENTITY_NAME: sender, ReservedKey.RUN_NUM: "job", **values})
    return peer


def send(engine: Engine, sender: str, task: str, data: Shareable) -> Shareable:
    """Send a site a task as a message, and return its answer."""
    data.set_header(ReservedHeaderKey.TASK_NAME, task)
    data.set_header(ReservedHeaderKey.TASK_ID, "1")
    data.set_peer_props(from_peer(sender).get_all_public_props())
    return engine.aux_runner.dispatch(ReservedTopic.DO_TASK, data, engine.new_context())


@pytest.mark.usefixtures("site_environment")
@pytest.mark.parametrize("defended", [False, True])
def test_a_task_before_the_job_is_judged(defended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server decides when a job starts. Until then, executors beside ``PrivateExecutor`` are not judged."""
    config = job("x")
    config["executors"].insert(0, {"tasks": ["train"], "executor": {"path": TRAINER, "args": {"delta": 0.375}}})
    engine = Engine(deploy(tmp_path / "site-1", config))
    if not defended:
        monkeypatch.setattr(Guard, "handle_event", lambda *_event: None)
    model = DXO(DataKind.WEIGHTS, {"numpy_key": np.zeros(3, np.float32)}).to_shareable()
    reply = send(engine, "server", "train", model)
    assert reply.get_return_code() == (ReturnCode.TASK_ABORTED if defended else ReturnCode.OK)
    assert ("DXO" in reply) != defended
    assert engine.runner.run_abort_signal.triggered == defended


@pytest.mark.usefixtures("site_environment")
@pytest.mark.parametrize("defended", [False, True])
def test_another_site_impersonates_the_server(defended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not defended:
        monkeypatch.setattr(components, "_refuse_sent_tasks", lambda _engine: None)
    engine = started(deploy(tmp_path / "site-1", job("x")))
    hello = NodeMessage("hello", 7, "train", "1", 0.0, 60.0, prekeys=True, renew=True)  # ends sessions under way
    reply = send(engine, "site-2", TASK, Shareable({KEY: encode(hello)}))
    if defended:
        assert reply.get_return_code() == ReturnCode.TOPIC_UNKNOWN
        assert KEY not in reply
        return
    assert decode(reply[KEY], Answer, "site-1").refusal is None


class Told(Executor):  # type: ignore[misc]  # NVFlare has no types
    """An executor, installed on the sites, that takes its learning rate from what the server adds to a task."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place, self.rate = place, 0.1

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        if self.place == "peer":
            self.rate = fl_ctx.get_peer_context().get_prop("rate", self.rate)
        else:
            self.rate = (fl_ctx.get_prop(FLContextKey.TASK_DATA) or Shareable()).get_header("rate", self.rate)
        return shareable


@pytest.mark.parametrize("defended", [False, True])
@pytest.mark.parametrize("place", ["peer", "task"])
def test_a_rate_that_the_server_adds_to_the_task_of_one_site(
    place: str, defended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not defended:
        monkeypatch.setattr(executor, "_context_of_app", lambda ctx: ctx)

    class Installed(Learning):
        def rate(self, site: str) -> float:
            rate = 0.0 if site == "site-2" else 0.1
            ctx = FLContextManager(identity_name=site, job_id="job").new_context()
            data = Shareable()
            data.set_header("rate", rate)
            ctx.set_peer_context(from_peer("server", rate=rate))
            ctx.set_prop(FLContextKey.TASK_DATA, data, private=True, sticky=False)
            app, model = Told(place), {"w": np.zeros(3, np.float32)}
            PrivateExecutor(app)._run("train", model, Work.of(model, {}, Rounds()), ctx, Signal())
            return app.rate

    sites: Any = Installed(2)
    if not defended:
        check_update_of_one(sites, is_seen=True)
    assert [sites.rate(site) for site in sites.names] == ([0.1, 0.1] if defended else [0.1, 0.0])
