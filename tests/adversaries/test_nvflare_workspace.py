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
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.workspace import Workspace
from nvflare.app_common.logging.constants import is_log_streaming_allowed
from nvflare.app_common.logging.job_log_streamer import JobLogStreamer
from nvflare.app_common.logging.site_log_streamer import SiteLogStreamer
from nvflare.fuel.utils.config_service import ConfigService
from nvflare.fuel.utils.log_utils import default_log_dict
from nvflare.private.event import fire_event
from nvflare.private.fed.utils import app_deployer
from nvflare.private.fed.utils.app_authz import AppAuthzService
from nvflare.security.logging import secure_format_exception
from tests.adversaries.test_nvflare_policy import DATA, DEPLOYER, JOBS, RESULTS, Site, policy
from tests.adversaries.test_nvflare_policy import code_is_forbidden as code_is_forbidden
from tests.support.homes import home as home
from tests.support.nvflare_jobs import PRIVATE, STREAMER, TRAINER, deploy, job, refusal, started
from tests.support.nvflare_jobs import site_environment as site_environment

from coterie.transports.nvflare.deployer import PrivateDeployer

CONFIG = "config/config_fed_client.json"
NAMES = [f"job-{number}" for number in range(4)]


@pytest.fixture
def no_settings() -> Iterator[None]:
    """Let NVFlare forget the settings of a process before and after a test."""
    ConfigService.reset()
    yield
    ConfigService.reset()


def hardened(folder: Path, *, defended: bool = True, **resources: Any) -> Site:  # noqa: ANN401 - of any type
    """Return a site with everything that the documentation asks for, or without its deployer."""
    parts = [*JOBS["components"], *(DEPLOYER["components"] if defended else [])]
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
    ("process", "name", "defended"),
    [
        ("worker_process", "comm_config.json", True),
        ("worker_process", "comm_config.json.default", True),
        ("worker_process", "comm_config.conf", True),
        ("worker_process", "resources.json", True),
        ("client_train", "comm_config.json", True),
        ("worker_process", "comm_config.json", False),
        ("client_train", "comm_config.json", False),
    ],
)
def test_code_in_a_job_without_a_folder_for_code(
    process: str, name: str, defended: bool, tmp_path: Path, code_is_forbidden: None, no_settings: None
) -> None:
    """The deployer either refuses the job, or the process of the job does not import the code."""
    site, ran = hardened(tmp_path / "site-1", defended=defended), tmp_path / "ran"
    described = tmp_path / "site-1" / "startup" / "fed_client.json"
    described.write_text(described.read_text().replace("host:1", NOWHERE).replace('"grpc"', '"tcp"'))
    code = f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n"
    for of_job in NAMES:
        drivers = f"{of_job}/app_site-1/drivers"
        setting = {"nvflare_decomposers": drivers.replace("/", ".") + ".of_server", "comm_driver_path": drivers}
        files = {CONFIG: json.dumps(job("x")), f"config/{name}": json.dumps(setting), "drivers/of_server.py": code}
        if site.deploy(of_job, files):
            assert defended
            return
        if run_process(process, site, of_job, ran):
            break
    assert ran.exists() is not defended


@pytest.mark.parametrize("defended", [False, True])
def test_a_job_that_allows_what_the_operator_forbids(
    defended: bool, tmp_path: Path, code_is_forbidden: None, no_settings: None
) -> None:
    """With ``allow_log_streaming`` false, no job may send a log. Which file counts depends on the order of the disk."""
    site = hardened(tmp_path / "site-1", defended=defended, allow_log_streaming=False)
    allowed = set()
    for name in NAMES:
        site.deploy(name, {CONFIG: json.dumps(job("x")), "config/resources.json": '{"allow_log_streaming": true}'})
        ConfigService.reset()
        site.begin("job-0")
        allowed.add(is_log_streaming_allowed())
    assert (True in allowed) is not defended


SIGNATURE = {".__nvfl_sig.json": "{}", ".__nvfl_submitter.crt": "", "config/.__nvfl_sig.json": "{}"}


@pytest.mark.parametrize(
    ("more", "allow_code", "refusal"),
    [
        ({}, False, ""),
        (SIGNATURE, False, ""),
        ({"config/config_fed_server.json": "{}"}, False, ""),  # apps for server and sites have both
        ({"custom/client.py": "", "custom/data.csv": "", "custom/.__nvfl_sig.json": "{}"}, True, ""),
        ({"custom/": ""}, False, "brings code"),
        ({"CUSTOM/client.py": ""}, False, "has more than"),
        ({"drivers/client.py": ""}, True, "has more than"),
        ({"drivers/": ""}, True, "has more than"),
        ({"client.py": ""}, True, "has more than"),
        ({"config/comm_config.yaml.default": ""}, True, "has more than"),
        ({"config/Config_fed_client.json": "{}"}, True, "has more than"),
        ({"config/a/config_fed_client.json": "{}"}, True, "has more than"),
        ({"custom/a/comm_config.json": "{}"}, True, "may take for its settings"),
        ({"custom/resources.JSON.default": "{}"}, True, "may take for its settings"),
        ({CONFIG: '{"rate": NaN}'}, True, "could not deploy"),
        ({CONFIG: "include required(file(x))"}, True, "could not deploy"),
        ({"../local/privacy.json": "{}"}, True, "could not deploy"),
    ],
)
def test_files_of_an_app_that_is_deployed(
    more: dict[str, str],
    allow_code: bool,
    refusal: str,
    tmp_path: Path,
    code_is_forbidden: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AppAuthzService, "authorize_app_info", lambda **_asked: (True, ""))
    monkeypatch.setattr(app_deployer, "verify_folder_signature_and_get_signers", lambda *_given: (True, [("", "", "")]))
    site = Site(tmp_path / "site-1")
    deployer = PrivateDeployer(allow_code=allow_code)
    site.engine.get_component = lambda _name: deployer
    answer = site.deploy("job-1", {CONFIG: json.dumps(job("x")), **more})
    assert refusal in answer if refusal else answer == ""
    assert (tmp_path / "site-1" / "job-1").exists() is not bool(refusal)


def test_a_job_that_cannot_be_deployed_leaves_nothing(
    tmp_path: Path, code_is_forbidden: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVFlare's own deployer would leave the app without a decision about its code, and tell the server the error."""

    def fail(**_asked: object) -> tuple[bool, str]:
        raise ValueError("a line of privacy.json")

    monkeypatch.setattr(AppAuthzService, "authorize_app_info", fail)
    site = hardened(tmp_path / "site-1")
    answer = site.deploy("job-1", {CONFIG: json.dumps(job("x"))})
    assert "could not deploy" in answer
    assert "privacy.json" not in answer
    assert not (tmp_path / "site-1" / "job-1").exists()


def test_a_job_whose_name_python_can_import(tmp_path: Path, code_is_forbidden: None) -> None:
    site = hardened(tmp_path / "site-1")
    assert "by its name" in site.deploy("accelerator", {CONFIG: json.dumps(job("x"))})
    assert not site.deploy("3f0c-accelerator", {CONFIG: json.dumps(job("x"))})


@pytest.mark.parametrize("named", ["job-2", None])
def test_a_job_whose_meta_data_name_another_job(named: str | None, tmp_path: Path, code_is_forbidden: None) -> None:
    """NVFlare's launcher would let it find the modules of that job."""
    meta = {} if named is None else {"job_id": named}
    for folder in ("local", "startup"):
        (tmp_path / folder).mkdir()
    answer = PrivateDeployer().deploy(Workspace(str(tmp_path), "site-1"), "job-1", meta, "app", b"", FLContext())
    assert "name another job" in str(answer)
    assert not (tmp_path / "job-1").exists()


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


@pytest.mark.parametrize("defended", [False, True])
def test_a_file_of_the_site_in_the_answer_to_a_job_that_is_refused(
    defended: bool, tmp_path: Path, code_is_forbidden: None
) -> None:
    """NVFlare parses the configuration. HOCON may include any file or address, and errors quote what was found."""
    site = hardened(tmp_path / "site-1", defended=defended)
    (key := tmp_path / "client.key").write_text("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n")
    for number, included in enumerate((f'file("{key}")', f'url("file://{key}")')):
        try:
            answer = site.deploy(f"job-{number}", {"config/config_fed_client.conf": f"include {included}"})
        except Exception as error:
            answer = secure_format_exception(error)  # as the client does, which sends this text
        assert ("MIIEvQ" in answer) is not defended
