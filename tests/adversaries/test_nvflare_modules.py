"""A server gives one of two sites the modules of another job, by the name in a job's meta data.

NVFlare's launcher puts the folder ``custom`` of the job that ``job_meta["job_id"]`` names on ``PYTHONPATH``, and takes
the name of the job that it starts from the message. A server chooses both. Members of a session do not compare them.
"""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs coterie[nvflare]")

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.workspace import Workspace
from nvflare.app_common.job_launcher.process_launcher import ProcessJobLauncher
from tests.adversaries.test_nvflare_app_differences import SCRIPT
from tests.support.nvflare_jobs import deploy, job, read, started
from tests.support.nvflare_jobs import site_environment as site_environment

RUN = """
import sys
from nvflare.utils.job_launcher_utils import refresh_custom_dir_import_path
custom, script, out = sys.argv[1:]
refresh_custom_dir_import_path(custom)  # as NVFlare's process of a job begins
from coterie.transports.nvflare.components import Guard
Guard()
from coterie.transports.nvflare.files import stop_imports_from_other_jobs
from pathlib import Path
stop_imports_from_other_jobs(Path(custom).resolve().parent)
sys.stdout = open(out, "w")
import runpy
runpy.run_path(script)
sys.stdout.close()
"""


class Launcher(ProcessJobLauncher):  # type: ignore[misc]  # NVFlare has no types
    """NVFlare's launcher with another program."""

    def __init__(self, command: str) -> None:
        super().__init__()
        self.command = command

    def get_command(self, _job_meta: Any, _fl_ctx: Any) -> str:  # noqa: ANN401 - NVFlare has no types
        return self.command


@pytest.mark.usefixtures("site_environment")
def test_processes_of_a_job_find_no_modules_of_another_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates, digests = [], set()
    (tmp_path / "run.py").write_text(RUN)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    for site, named in (("site-1", "job-1"), ("site-2", "job-2")):
        folder = tmp_path / site
        for name in ("local", "startup"):
            (folder / name).mkdir(parents=True)
        for of_job, files in (("job-1", {"client.py": SCRIPT}), ("job-2", {"accelerator.py": ""})):
            app = deploy(folder, job("x"), of_job).rename(folder / of_job / f"app_{site}")
            (app / "custom").mkdir()
            for name, content in files.items():
                (app / "custom" / name).write_text(content)
        app, out = folder / "job-1" / f"app_{site}", tmp_path / f"{site}.txt"
        ctx = FLContext()
        ctx.set_prop(FLContextKey.WORKSPACE_OBJECT, Workspace(str(folder), site), private=True)
        monkeypatch.chdir(folder)
        parts = [sys.executable, tmp_path / "run.py", app / "custom", app / "custom" / "client.py", out]
        Launcher(" ".join(map(str, parts))).launch_job({"job_id": named}, ctx).wait()
        rates.append(out.read_text())
        digests.add(read(app).digest)
    assert len(set(rates)) == len(digests)  # equal apps train in the same way


@pytest.mark.usefixtures("site_environment")
def test_places_of_modules_when_a_job_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app, site = deploy(tmp_path, job("x"), "job-1"), tmp_path
    kept = [str(app / "custom"), str(site / "local" / "code"), str(tmp_path.parent / "other")]
    places = [str(site), *kept, str(site / "job-2" / "app" / "custom"), str(site / "job-1")]
    monkeypatch.setattr(sys, "path", [*places, *sys.path])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))
    started(app)
    assert sys.path[:3] == kept
    assert os.environ["PYTHONPATH"].split(os.pathsep) == kept
    assert set(places) & set(sys.path) == set(kept)
