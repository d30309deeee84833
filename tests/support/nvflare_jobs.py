"""Apps of NVFlare's jobs in the workspace of a site, read by Coterie and built by NVFlare."""

import argparse
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nvflare.private.fed.client.client_json_config import ClientJsonConfigurator

from coterie.transports.nvflare.job_config import read_app
from coterie.transports.nvflare.request import SiteApp

PRIVATE = "coterie.transports.nvflare.executor.PrivateExecutor"
TRAINER = "nvflare.app_common.np.np_trainer.NPTrainer"
STREAMER = "nvflare.app_common.logging.job_log_streamer.JobLogStreamer"
FILE = "config_fed_client.json"


def job(argument: str, *components: dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401
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


def built(app: Path, site: str) -> object:
    """Return the argument that NVFlare gives to the trainer on a site."""
    return configured(app, site).executors[0].executor.executor._model_name


def configured(app: Path, site: str) -> Any:  # noqa: ANN401 - NVFlare has no types
    """Let NVFlare build the app of a job as on a site."""
    folders = SimpleNamespace(
        get_app_config_dir=lambda *_: str(app / "config"), get_app_custom_dir=lambda *_: str(app / "custom")
    )
    named = argparse.Namespace(
        job_id="job", sp_scheme="grpc", sp_target="host:1", client_name=site, workspace=str(app.parent), set=[]
    )
    made = ClientJsonConfigurator(
        workspace_obj=folders, config_file_name=str(app / "config" / FILE), args=named, app_root=str(app)
    )
    made.configure()
    return made


def script_at(path: Path) -> Any:  # noqa: ANN401 - the names of a script
    """Import a script as Python does, from its bytecode where there is any."""
    spec = importlib.util.spec_from_file_location("client", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.fixture
def site_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let executors be built as on a site, where tests that come later may write bytecode as before."""
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", os.environ.get("PYTHONDONTWRITEBYTECODE", ""))
    monkeypatch.setenv("RATE_OF_SITE", "0.1")
