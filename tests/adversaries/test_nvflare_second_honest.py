"""Honest jobs that a site refuses by mistake."""

from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs coterie[nvflare]")

from tests.support.nvflare_jobs import deploy, job, read


@pytest.mark.parametrize("text", ["--data /mnt/proc/images", "data/proc/train.csv", "--cache /srv/dev/fd-study/fd"])
def test_a_folder_that_is_only_called_like_that_of_processes(text: str, tmp_path: Path) -> None:
    """The documentation asks to keep data outside of the workspace, and refuses ``/proc`` and ``/dev/fd`` only."""
    assert read(deploy(tmp_path, job(text)))
