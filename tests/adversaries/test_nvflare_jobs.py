"""A server sends one job to all sites, with references or paths that have another meaning on each of them.

The texts and the files of the job are equal, so members of a session find no difference. If NVFlare derives other
arguments from them for one site, the sum of a circle is the update of the other one.
"""

import importlib
import io
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs coterie[nvflare]")

from nvflare.apis.workspace import Workspace
from nvflare.app_common.executors.task_script_runner import TaskScriptRunner
from nvflare.private.fed.utils.app_deployer import AppDeployer
from tests.support.homes import home as home
from tests.support.nvflare_jobs import STREAMER, TRAINER, built, deploy, job, read, refusal, started
from tests.support.nvflare_jobs import site_environment as site_environment
from tests.support.nvflare_sites import Learning, check_update_of_one, script_at

from coterie.deployment.home import node_home
from coterie.errors import ConfigError
from coterie.transports.nvflare import PrivateExecutor, components, job_config
from coterie.transports.nvflare.request import SiteApp

Deploy = Callable[[Path, str], Path]
"""Writes the app of a job into the workspace of a site, and returns its folder."""
Rate = Callable[[Path, str], float]
"""Returns the learning rate that NVFlare gives to the app of a site."""


def check_job(deploy_to: Deploy, rate_of: Rate, folder: Path, *, is_seen: bool) -> None:
    """Run a round of a job on two sites, and check whether the server sees the update of the first one."""

    class Deployed(Learning):
        def app_of(self, site: str) -> SiteApp:
            return read(deploy_to(folder, site))

        def rate(self, site: str) -> float:
            return rate_of(deploy_to(folder, site), site)

    sites = Deployed(2)
    if is_seen:
        check_update_of_one(sites, is_seen=True)
        return
    with pytest.raises(ConfigError, match="nodes enrolled within"):
        check_update_of_one(sites, is_seen=False)
    assert sites.trained == []


def rate_in_argument(app: Path, site: str) -> float:
    """Return the rate in the argument that NVFlare gives to the executor: ``lr=0.1``."""
    return float(str(built(app, site)).removeprefix("lr="))


@pytest.mark.usefixtures("site_environment")
@pytest.mark.parametrize("defended", [False, True])
@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("{{rates[{SITE_NAME!s}]}}", {"site-1": "0.1", "site-2": "0"}),
        ("{{rates[{SITE_NAME[5]}]}}", ["of no site", "0.1", "0"]),
    ],
)
def test_arguments_that_nvflare_looks_up_by_the_sites_name(
    text: str,
    rates: dict[str, str] | list[str],
    defended: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not defended:
        monkeypatch.setattr(job_config, "_check_references", lambda _described: None)
    check_job(
        lambda folder, site: deploy(folder / site, job(f"lr={text}", rates=rates)),
        rate_in_argument,
        tmp_path,
        is_seen=not defended,
    )


def leave_out_by_name(described: dict[str, list[dict[str, str]]]) -> None:
    """Leave out every component whose path has the name of NVFlare's sender of logs in it."""
    described["components"] = [one for one in described["components"] if "JobLogStreamer" not in one["path"]]


@pytest.mark.usefixtures("site_environment")
@pytest.mark.parametrize("defended", [False, True])
def test_arguments_in_a_component_that_is_not_compared(
    defended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not defended:
        monkeypatch.setattr(job_config, "_leave_out_streamer", leave_out_by_name)
        monkeypatch.setattr(job_config, "_check_references", lambda _described: None)

    def deploy_to(folder: Path, site: str) -> Path:
        args = {"log_file_name": "0.1" if site == "site-1" else "0"}
        component = {"id": "s", "path": STREAMER, "args": args}
        return deploy(folder / site, job("lr={components[0][args][log_file_name]}", component))

    check_job(deploy_to, rate_in_argument, tmp_path, is_seen=not defended)


@pytest.mark.parametrize("defended", [False, True])
def test_a_script_in_the_folder_of_another_job(defended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each site has its workspace at the same path, as in containers; here that path is a link to the current one."""
    if not defended:
        monkeypatch.setattr(job_config, "_check_paths", lambda _described, _folder: None)
    here = tmp_path / "workspace"
    script = str(here / "other" / "app" / "config" / "client.py")

    def deploy_to(folder: Path, site: str) -> Path:
        config = job("x")
        config["executors"][0]["executor"]["args"]["executor"]["args"] = {"task_script_path": script}
        deploy(folder / site, config)
        other = deploy(folder / site, {}, "other")
        (other / "config" / "client.py").write_text(f"RATE = {0.1 if site == 'site-1' else 0}\n")
        here.unlink(missing_ok=True)
        here.symlink_to(folder / site)
        return here / "job" / "app"

    def rate_of(app: Path, _site: str) -> float:
        return float(script_at(Path(TaskScriptRunner(str(app), script).script_full_path)).RATE)

    check_job(deploy_to, rate_of, tmp_path, is_seen=not defended)


@pytest.mark.usefixtures("site_environment")
@pytest.mark.parametrize("defended", [False, True])
def test_a_function_in_the_folder_of_another_job(
    defended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python finds it by its dotted name if the client was started in its workspace."""
    if not defended:
        monkeypatch.setattr(job_config, "_check_modules", lambda _folder: None)
    config = job("x")
    config["executors"][0]["executor"]["args"]["executor"]["args"] = {
        "model_name": {"path": "other.app.custom.given.rate"}
    }

    def deploy_to(folder: Path, site: str) -> Path:
        code = deploy(folder / site, {}, "other") / "custom"
        code.mkdir(exist_ok=True)
        (code / "given.py").write_text(f"def rate():\n    return 'lr={0.1 if site == 'site-1' else 0}'\n")
        app = deploy(folder / site, config)
        for name in [name for name in sys.modules if name == "other" or name.startswith("other.")]:
            del sys.modules[name]
        monkeypatch.setattr(sys, "path", [str(folder / site), *(p for p in sys.path if str(folder) not in p)])
        importlib.invalidate_caches()
        built(app, site)
        return app

    check_job(deploy_to, rate_in_argument, tmp_path, is_seen=not defended)


@pytest.mark.parametrize("defended", [False, True])
def test_a_script_of_which_the_app_has_several(defended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVFlare uses the first one that it finds, and the order of folders depends on the disk."""
    if not defended:
        monkeypatch.setattr(job_config, "_check_script", lambda _text, _custom: None)
    config, walk = job("x"), os.walk
    config["executors"][0]["executor"]["args"]["executor"]["args"] = {"task_script_path": "client.py"}

    def deploy_to(folder: Path, site: str) -> Path:
        app = deploy(folder / site, config)
        for name, rate in (("first", 0.1), ("second", 0)):
            (app / "custom" / name).mkdir(parents=True, exist_ok=True)
            (app / "custom" / name / "client.py").write_text(f"RATE = {rate}\n")
        return app

    def rate_of(app: Path, site: str) -> float:
        with monkeypatch.context() as patched:
            patched.setattr(os, "walk", lambda top: sorted(walk(top), reverse=site == "site-2"))
            return float(script_at(Path(TaskScriptRunner(str(app / "custom"), "client.py").script_full_path)).RATE)

    check_job(deploy_to, rate_of, tmp_path, is_seen=not defended)


@pytest.mark.usefixtures("site_environment")
@pytest.mark.parametrize("defended", [False, True])
def test_a_job_with_the_name_of_coteries_folder(
    defended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site would lose its settings and its memory, so a lying server could begin again with the same data."""
    if not defended:
        monkeypatch.setattr(job_config, "_check_home", lambda _folder: None)
    site = tmp_path / "site-1"
    monkeypatch.setenv("COTERIE_HOME", str(site / "coterie"))
    settings = node_home("site-1") / "node.toml"
    settings.write_text("weight = 1\n")
    engine = started(deploy(site, job("x")))
    assert refusal(engine) == ("settings" if defended else None)
    for folder in ("startup", "local"):
        (site / folder).mkdir()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as app:
        app.writestr("config/config_fed_client.json", "{}")
    assert not AppDeployer().deploy(Workspace(str(site), "site-1"), "coterie", {}, "app", packed.getvalue(), None)
    assert not settings.exists()  # NVFlare deletes it in any case, so a site refuses to start with it there


def in_list(config: dict[str, Any], other: dict[str, Any]) -> None:
    config["executors"].insert(0, other)


def in_table(config: dict[str, Any], other: dict[str, Any]) -> None:
    """NVFlare compares paths in the configuration, in which a list's first entry is ``#1``."""
    config["executors"] = {"#1": other, "#2": config["executors"][0]}


def by_path(config: dict[str, Any], other: dict[str, Any]) -> None:
    config["executors.#1"] = other


@pytest.mark.usefixtures("site_environment")
@pytest.mark.parametrize("add", [in_list, in_table, by_path])
@pytest.mark.parametrize("defended", [False, True])
def test_an_executor_beside_the_private_one(
    defended: bool,
    add: Callable[[dict[str, Any], dict[str, Any]], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has the task "train", so the server gets the model of this site alone, while sessions continue."""
    if not defended:
        monkeypatch.setattr(components, "_reason_to_refuse", lambda _guard, _ctx: "")
    config = job("x")
    add(config, {"tasks": ["train"], "executor": {"path": TRAINER}})
    engine = started(deploy(tmp_path / "site-1", config))
    assert isinstance(engine.runner.find_executor("train"), PrivateExecutor) == defended
    assert refusal(engine) == ("settings" if defended else None)
