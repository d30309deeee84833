"""A job has a component that sends data of a site to the server without Coterie; its configuration may hide the class.

NVFlare calls whatever a path names, so a function may return the component. All components get all events.
"""

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs coterie[nvflare]")

from nvflare.app_common.logging.job_log_streamer import JobLogStreamer
from nvflare.app_common.streamers.object_retriever import ObjectRetriever
from nvflare.widgets.fed_event import ClientFedEventRunner
from tests.support.homes import home as home
from tests.support.nvflare_jobs import STREAMER, TRAINER, deploy, job, refusal, started
from tests.support.nvflare_jobs import site_environment as site_environment

from coterie.transports.nvflare import components
from coterie.transports.nvflare.job_config import read_app

pytestmark = pytest.mark.usefixtures("site_environment")

SENDERS = (JobLogStreamer, ObjectRetriever, ClientFedEventRunner)
RETRIEVER = "nvflare.app_common.streamers.file_retriever.FileRetriever"


def check(app: Path, monkeypatch: pytest.MonkeyPatch, *, defended: bool) -> None:
    """Start a job with a sender. If defended, the job is refused and the sender gets no events."""
    if not defended:
        monkeypatch.setattr(components, "_is_accepted", lambda _part: True)
    engine = started(app)
    of_job = [part for part in engine.handlers if part not in engine.widgets.values()]
    assert sum(isinstance(part, SENDERS) for part in of_job) == (0 if defended else 1)
    assert refusal(engine) == ("settings" if defended else None)


@pytest.mark.parametrize("defended", [False, True])
@pytest.mark.parametrize(
    "component",
    [
        {"path": "yaml.unsafe_load", "args": {"stream": f"!!python/object/apply:{STREAMER} []"}},
        {"path": "yaml.unsafe_load", "args": {"stream": f"!!python/object/apply:{RETRIEVER} [/etc]"}},
        {"path": STREAMER},
        {"path": TRAINER, "args": {"model_name": {"path": STREAMER}}},
    ],
    ids=["a sender of logs", "a sender of files", "by its path", "within another one"],
)
def test_a_component_that_sends(
    component: dict[str, Any],
    defended: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``yaml`` is a dependency of NVFlare, so the job needs no code of its own."""
    app = deploy(tmp_path / "site-1", job("x", {"id": "sender", **component}))
    read_app(app, app / "config")  # its text is accepted
    check(app, monkeypatch, defended=defended)


@pytest.mark.parametrize("defended", [False, True])
def test_a_component_that_the_jobs_own_function_returns(
    defended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = deploy(tmp_path / "site-1", job("x", {"id": "s", "path": "made_by_job.make"}))
    (app / "custom").mkdir()
    (app / "custom" / "made_by_job.py").write_text(
        "from nvflare.app_common.logging.job_log_streamer import JobLogStreamer\n\n\n"
        "def make():\n    return JobLogStreamer()\n"
    )
    monkeypatch.syspath_prepend(str(app / "custom"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "made_by_job", raising=False)
    check(app, monkeypatch, defended=defended)
