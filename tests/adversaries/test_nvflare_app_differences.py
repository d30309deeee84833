"""A server gives the apps of two sites small differences: orders, folders without files, paths, and names of jobs.

An app may go through its arguments in order, and look which folders and modules there are.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs coterie[nvflare]")

from tests.support.homes import home as home
from tests.support.nvflare_jobs import built, deploy, introduced, job, read, started
from tests.support.nvflare_jobs import site_environment as site_environment
from tests.support.nvflare_sites import APP, Learning, check_update_of_one

from coterie.errors import ConfigError
from coterie.transports.nvflare import request
from coterie.transports.nvflare.messages import flatten
from coterie.transports.nvflare.request import SiteApp

pytestmark = pytest.mark.usefixtures("site_environment")

SCHEDULE = {"first": 0.1, "last": 0}


def test_the_apps_of_two_sites_whose_arguments_have_another_order(tmp_path: Path) -> None:
    orders = [SCHEDULE, dict(reversed(SCHEDULE.items()))]
    apps = [deploy(tmp_path / f"site-{number}", job(order)) for number, order in enumerate(orders, 1)]
    given = [list(built(app, "site-1").values()) for app in apps]
    assert given == [[0.1, 0], [0, 0.1]]  # what NVFlare gives to the executor
    assert read(apps[0]).digest != read(apps[1]).digest
    assert len({introduced(started(app)) for app in apps}) == 2


def without_order(value: object, path: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield the leaves of a configuration without the places of keys."""
    for leaf, content in flatten(value, path):
        yield re.sub(r"\.\d+(?=')", ".", leaf), content


@pytest.mark.parametrize("defended", [False, True])
def test_an_app_that_trains_with_the_first_of_its_rates(
    defended: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not defended:
        monkeypatch.setattr(request, "flatten", without_order)

    class Scheduled(Learning):
        def rate(self, site: str) -> float:
            return float(next(iter(self.apps[site].config["executor"]["args"]["rates"].values())))

    orders = {"site-1": SCHEDULE, "site-2": dict(reversed(SCHEDULE.items()))}
    apps = {site: SiteApp({"executor": {"args": {"rates": order}}}, APP.files) for site, order in orders.items()}
    check_update_of_one(Scheduled(2, apps), is_seen=not defended)


def test_a_folder_without_files_that_one_site_has(tmp_path: Path) -> None:
    """Python imports such a folder as a package, and scripts look whether a package or a folder is there."""
    apps = [deploy(tmp_path / f"site-{number}", job("x")) for number in (1, 2)]
    (apps[1] / "custom" / "still").mkdir(parents=True)
    assert read(apps[0]).digest != read(apps[1]).digest


def test_a_path_that_means_another_file_in_the_process_of_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVFlare's process runs in the workspace, and the process of a script in the folder of the app."""
    workspace = tmp_path / "workspaces" / "site-1"
    other = deploy(workspace, {}, "other") / "config" / "rate.txt"
    other.write_text("0")
    path = "/proc/self/cwd/../../other/app/config/rate.txt"
    config = job("x")
    config["executors"][0]["executor"]["args"]["executor"] = {
        "path": "nvflare.app_common.executors.client_api_executor.ClientAPIExecutor",
        "args": {"execution_mode": "external_process", "command": ["python", "custom/client.py", path]},
    }
    app = deploy(workspace, config)
    monkeypatch.chdir(workspace)
    opened = subprocess.run(["cat", path], cwd=app, capture_output=True, check=False)
    assert opened.stdout == b"0"
    with pytest.raises(ConfigError, match="workspace"):
        read(app)


SCRIPT = """
try:
    import accelerator
except ImportError:
    print(0.1)
else:
    print(0)
"""


@pytest.mark.parametrize("defended", [False, True])
def test_a_job_with_the_name_of_a_module_that_a_script_may_use(defended: bool, tmp_path: Path) -> None:
    """The client changes to its workspace and starts the processes of jobs there, so Python looks for modules in it.

    A folder without code is a package; it has no file, and a site sees no module of another job.
    """
    rates, digests = [], set()
    for site in (tmp_path / "site-1", tmp_path / "site-2"):
        for folder in ("local", "startup"):
            (site / folder).mkdir(parents=True)
        app = deploy(site, job("x"))
        (app / "custom").mkdir()
        (app / "custom" / "client.py").write_text(SCRIPT)
        if site.name == "site-2":
            deploy(site, {}, "accelerator")
        run = "import runpy; from coterie.transports.nvflare.components import Guard; " + "Guard(); " * defended
        command = [sys.executable, "-c", f"{run}runpy.run_path({str(app / 'custom' / 'client.py')!r})"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        rates.append(subprocess.run(command, cwd=site, env=environment, capture_output=True, check=True).stdout)
        digests.add(read(app).digest)
    assert (len(set(rates)) == len(digests)) is defended
