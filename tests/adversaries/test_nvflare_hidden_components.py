"""A server names a function in the client's part of a job, and the function returns what a site refuses by its class.

Promise, in docs/nvflare.md: a job that lists ``JobLogStreamer`` is refused ("a site refuses jobs that do"). Jobs with a
sender of files or a receiver of metrics are, too (``job_config._check_components``). NVFlare builds a component by
calling whatever its path names; Coterie looks for classes only.
"""

import sys
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs coterie[nvflare]")

from nvflare.app_common.logging.job_log_streamer import JobLogStreamer
from nvflare.app_common.streamers.object_retriever import ObjectRetriever
from tests.support.nvflare_jobs import STREAMER, configured, deploy, job, read
from tests.support.nvflare_jobs import site_environment as site_environment

from coterie.errors import ConfigError

REFUSED = (JobLogStreamer, ObjectRetriever)


@pytest.mark.parametrize(
    "made",
    [
        f"!!python/object/apply:{STREAMER} []",
        "!!python/object/apply:nvflare.app_common.streamers.file_retriever.FileRetriever [/etc]",
    ],
    ids=["sender of logs", "sender of files"],
)
def test_a_component_that_a_function_makes(made: str, tmp_path: Path, site_environment: None) -> None:
    """``yaml`` is a dependency of NVFlare; the job needs no code of its own."""
    app = deploy(tmp_path / "site-1", job("x", {"id": "s", "path": "yaml.unsafe_load", "args": {"stream": made}}))
    built = [one for one in configured(app, "site-1").runner_config.handlers if isinstance(one, REFUSED)]
    assert len(built) == 1  # NVFlare has it, and gives it all events of the job
    with pytest.raises(ConfigError):
        read(app)


def test_a_class_that_a_jobs_own_function_returns(
    tmp_path: Path, site_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = deploy(tmp_path / "site-1", job("x", {"id": "s", "path": "made_by_job.make"}))
    (app / "custom").mkdir()
    (app / "custom" / "made_by_job.py").write_text(
        "from nvflare.app_common.logging.job_log_streamer import JobLogStreamer\n\n\n"
        "def make():\n    return JobLogStreamer()\n"
    )
    monkeypatch.syspath_prepend(str(app / "custom"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    built = [one for one in configured(app, "site-1").runner_config.handlers if isinstance(one, REFUSED)]
    assert len(built) == 1
    with pytest.raises(ConfigError):
        read(app)
