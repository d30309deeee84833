"""A server uses NVFlare's events to get data of a site without Coterie, and chooses when a site reads its app."""

import threading
from hashlib import sha256
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs coterie[nvflare]")

from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE, AnalyticsDataType
from nvflare.apis.dxo import from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FedEventHeader, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.apis.utils.analytix_utils import create_analytic_dxo, send_analytic_dxo
from nvflare.private.fed.client.admin_commands import ShowErrorsCommand
from nvflare.widgets.widget import WidgetID
from tests.support.homes import home as home
from tests.support.nvflare_jobs import Engine, deploy, introduced, job, refusal, started
from tests.support.nvflare_jobs import site_environment as site_environment

from coterie.transports.nvflare import PrivateExecutor, components
from coterie.transports.nvflare.job_config import read_app
from coterie.transports.nvflare.request import SiteApp

pytestmark = pytest.mark.usefixtures("site_environment")

CONVERT = {
    "id": "convert",
    "path": "nvflare.app_common.widgets.convert_to_fed_event.ConvertToFedEvent",
    "args": {"events_to_convert": [ANALYTIC_EVENT_TYPE]},
}
SENDER = {"id": "sender", "path": "nvflare.widgets.fed_event.ClientFedEventRunner", "args": {"topic": "metrics"}}


@pytest.mark.parametrize("defended", [False, True])
@pytest.mark.parametrize("listed", [[CONVERT], [SENDER, CONVERT]], ids=["NVFlare's own sender", "one of the job too"])
def test_metrics_stay_on_their_site(
    listed: list[dict[str, object]],
    defended: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job's components come before its executor, so its own sender would send before ``PrivateExecutor`` acts."""
    if not defended:
        monkeypatch.setattr(components, "_reason_to_refuse", lambda _guard, _ctx: "")
        if SENDER not in listed:
            monkeypatch.setattr(PrivateExecutor, "_keep", lambda *_event: None)
    app = deploy(
        tmp_path / "site-1", {"components": listed, **{k: v for k, v in job("x").items() if k != "components"}}
    )
    engine = started(app)
    script = engine.runner.find_executor("train").executor  # it logs as `SummaryWriter().add_scalar` does in a script
    dxo = create_analytic_dxo("train_loss", 0.3125, AnalyticsDataType.SCALAR)
    send_analytic_dxo(script, dxo, engine.new_context())
    assert [from_shareable(event).data["track_value"] for event in engine.sent] == ([] if defended else [0.3125])
    assert refusal(engine) == ("settings" if defended and SENDER in listed else None)


@pytest.mark.parametrize("defended", [False, True])
def test_errors_that_nvflare_keeps_for_the_server(
    defended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server sends the command to the process of the job; no setting of the site forbids it."""
    if not defended:
        monkeypatch.setattr(components, "_keep_errors", lambda _engine: None)
    engine = started(deploy(tmp_path / "site-1", job("x")))
    script = engine.runner.find_executor("train").executor  # it logs as ClientAPIExecutor does when a script fails
    script.log_error(engine.new_context(), "ValueError: no number for patient 4817")
    told = ShowErrorsCommand().process(Shareable(), engine.new_context())
    assert ("4817" in str(told)) != defended


def fire_from_server(engine: Engine, event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a site an event as the server's part of NVFlare does, and wait until the site has handled it."""
    handled, fire = threading.Event(), engine.fire_event

    def fire_and_note(event_type: str, fl_ctx: FLContext) -> None:
        fire(event_type, fl_ctx)
        handled.set()

    request = Shareable()
    for name, value in {
        FedEventHeader.EVENT_TYPE: event,
        FedEventHeader.TIMESTAMP: 1.0,
        FedEventHeader.EVENT_ID: event,
    }.items():
        request.set_header(name, value)
    request.set_peer_props({ReservedKey.IDENTITY_NAME: "server"})
    receiver = engine.widgets[WidgetID.FED_EVENT_RUNNER]
    receiver.abort_signal = Signal()
    with monkeypatch.context() as patched:
        patched.setattr(engine, "fire_event", fire_and_note)
        receiver._receive("fed.event", request, engine.new_context())
        assert handled.wait(10)
        receiver.abort_signal.trigger(True)


def read_at_every_event(private: PrivateExecutor, event_type: str, fl_ctx: FLContext) -> None:
    """Handle an event whatever its scope is, and read the app again."""
    if event_type == EventType.ABOUT_TO_START_RUN:
        private._site_app = None
        private.judge(fl_ctx)


@pytest.mark.parametrize("defended", [False, True])
def test_the_server_chooses_when_a_site_reads_its_app(
    defended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script writes its number of examples to a file, and the server makes the site read its app again.

    The digest of an app is sent to the server in the clear. The server knows all other files, so it can try numbers.
    """
    if not defended:
        monkeypatch.setattr(PrivateExecutor, "handle_event", read_at_every_event)
    app = deploy(tmp_path / "site-1", job("x"))
    (app / "custom").mkdir()
    engine, known = started(app), read_app(app, app / "config")
    assert introduced(engine) == known.digest
    (app / "custom" / "examples.txt").write_text("4817\n")
    fire_from_server(engine, EventType.ABOUT_TO_START_RUN, monkeypatch)
    told = introduced(engine)
    found = [
        number
        for number in range(4000, 5000)
        if told
        == SiteApp(known.config, {**known.files, "custom/examples.txt": sha256(b"%d\n" % number).hexdigest()}).digest
    ]
    assert found == ([] if defended else [4817])
