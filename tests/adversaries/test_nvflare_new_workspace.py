"""A job brings files that NVFlare reads in the processes of all jobs of a site, and no folder ``custom``.

In each process of a job NVFlare searches the whole workspace for ``comm_config.json`` and ``resources.json``, and takes
the first files of these names. The first names folders with code, the second a module; NVFlare imports both. The site
has the documented hardening: ``PrivateJobs``, ``PrivateDeployer``, a list of classes, and ``byoc`` for nobody.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs coterie[nvflare]")

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContextManager
from nvflare.app_common.logging.constants import is_log_streaming_allowed
from nvflare.app_common.logging.job_log_streamer import JobLogStreamer
from nvflare.app_common.logging.site_log_streamer import SiteLogStreamer
from nvflare.fuel.utils.config_service import ConfigService
from nvflare.fuel.utils.log_utils import default_log_dict
from nvflare.private.event import fire_event
from nvflare.security.logging import secure_format_exception
from tests.adversaries.test_nvflare_policy import DATA, DEPLOYER, JOBS, RESULTS, Site, policy
from tests.adversaries.test_nvflare_policy import code_is_forbidden as code_is_forbidden
from tests.support.homes import home as home
from tests.support.nvflare_jobs import PRIVATE, STREAMER, TRAINER, deploy, job, refusal, started
from tests.support.nvflare_jobs import site_environment as site_environment

CONFIG = "config/config_fed_client.json"
NAMES = [f"job{number}" for number in range(4)]


@pytest.fixture
def no_settings() -> Iterator[None]:
    """Let NVFlare forget the settings of a process before and after a test."""
    ConfigService.reset()
    yield
    ConfigService.reset()


def hardened(folder: Path, **resources: Any) -> Site:  # noqa: ANN401 - of any type
    """Return a site with everything that the documentation asks for."""
    parts = [*JOBS["components"], *DEPLOYER["components"]]
    site = Site(folder, class_allow_list=[PRIVATE, TRAINER], components=parts, **resources)
    policy(folder / "local", RESULTS | DATA, **JOBS)
    (folder / "local" / "log_config.json").write_text(json.dumps(default_log_dict))
    return site


NOWHERE = "127.0.0.1:9"
"""A server that cannot be reached: everything below happens before a process needs it."""


def command_of(process: str, folder: str, job: str) -> list[str]:
    """Return the command of NVFlare's client, or of the process of a job as its launcher starts it."""
    given = {"m": folder, "s": "fed_client.json"}
    if process == "worker_process":
        given |= {"w": f"{folder}/startup", "t": "t", "ts": "t", "d": "d", "n": job, "c": "site-1"}
        given |= {"p": f"tcp://{NOWHERE}", "g": NOWHERE, "scheme": "tcp"}
    options = ["secure_train=false", "uid=site-1", "org=org", "config_folder=config"]
    command = [sys.executable, "-m", f"nvflare.private.fed.app.client.{process}"]
    return [*command, *(part for key, value in given.items() for part in (f"-{key}", value)), "--set", *options]


def run_process(process: str, site: Site, job: str, ran: Path) -> bool:
    """Start a process of NVFlare on a site, and return whether code of the server ran in it."""
    folder = site.workspace.root_dir
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (Path(folder).parent / "output").open("wb") as output:
        # NVFlare's client changes to its workspace before it starts processes
        started = subprocess.Popen(
            command_of(process, folder, job), cwd=folder, env=environment, stdout=output, stderr=output
        )
        try:
            deadline = time.monotonic() + 30
            while not ran.exists() and started.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
        finally:
            started.kill()
            started.wait()
    return ran.exists()


@pytest.mark.parametrize(
    ("process", "name"),
    [
        ("worker_process", "comm_config.json"),
        ("worker_process", "comm_config.json.default"),
        ("worker_process", "comm_config.conf"),
        ("worker_process", "resources.json"),
        ("client_train", "comm_config.json"),
    ],
)
def test_code_in_a_job_without_a_folder_for_code(
    process: str, name: str, tmp_path: Path, code_is_forbidden: None, no_settings: None
) -> None:
    """The deployer either refuses the job, or the process of the job does not import the code."""
    site, ran = hardened(tmp_path / "site-1"), tmp_path / "ran"
    described = tmp_path / "site-1" / "startup" / "fed_client.json"
    described.write_text(described.read_text().replace("host:1", NOWHERE).replace('"grpc"', '"tcp"'))
    code = f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n"
    for of_job in NAMES:
        drivers = f"{of_job}/app_site-1/drivers"
        setting = {"nvflare_decomposers": drivers.replace("/", ".") + ".of_server", "comm_driver_path": drivers}
        files = {CONFIG: json.dumps(job("x")), f"config/{name}": json.dumps(setting), "drivers/of_server.py": code}
        if site.deploy(of_job, files):
            return
        if run_process(process, site, of_job, ran):
            break
    assert not ran.exists()


def test_a_job_that_allows_what_the_operator_forbids(
    tmp_path: Path, code_is_forbidden: None, no_settings: None
) -> None:
    """With ``allow_log_streaming`` false, no job may send a log. Which file counts depends on the order of the disk."""
    site = hardened(tmp_path / "site-1", allow_log_streaming=False)
    for name in NAMES:
        site.deploy(name, {CONFIG: json.dumps(job("x")), "config/resources.json": '{"allow_log_streaming": true}'})
        ConfigService.reset()
        site.begin("job0")
        assert not is_log_streaming_allowed()


@pytest.mark.parametrize("key", ["path", "class_path"])
def test_a_job_that_lists_the_sender_of_the_error_log(
    key: str, tmp_path: Path, site_environment: None, no_settings: None
) -> None:
    """Where the operator forbids logs to be sent, NVFlare removes such an entry, unless it has a ``class_path``."""
    sender = {"id": "auto_log_streamer", key: STREAMER, "args": {"log_file_name": "error_log.txt"}}
    workspace = tmp_path / "site-1"
    Site(workspace, allow_log_streaming=False)
    app = deploy(workspace, job("x", sender))
    app = app.rename(app.with_name("app_site-1"))
    kept = {FLContextKey.JOB_META: {"job_id": "job"}, FLContextKey.WORKSPACE_ROOT: str(workspace)}
    ctx = FLContextManager(identity_name="site-1", job_id="", private_stickers=kept).new_context()
    fire_event(EventType.BEFORE_JOB_LAUNCH, [SiteLogStreamer(log_file_name="error_log.txt")], ctx)
    engine = started(app)
    senders = [part for part in engine.handlers if isinstance(part, JobLogStreamer)]
    assert not senders or refusal(engine) == "settings"


def test_a_file_of_the_site_in_the_answer_to_a_job_that_is_refused(tmp_path: Path, code_is_forbidden: None) -> None:
    """The deployer parses the configuration. HOCON may include any file or address, and errors quote what was found."""
    site = hardened(tmp_path / "site-1")
    (key := tmp_path / "client.key").write_text("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n")
    for number, included in enumerate((f'file("{key}")', f'url("file://{key}")')):
        try:
            answer = site.deploy(f"job{number}", {"config/config_fed_client.conf": f"include {included}"})
        except Exception as error:
            answer = secure_format_exception(error)  # as the client does, which sends this text
        assert "MIIEvQ" not in answer
