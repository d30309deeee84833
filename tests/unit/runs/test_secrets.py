"""The secret of simulated clients: readable by its owner only, and no two different updates get the same noise."""

import errno
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import ConfigError, InputError
from coterie.runs.engine.secrets import ClientSecrets
from coterie.runs.settings.config import RunConfig
from coterie.runs.storage.folder import SECRET_BYTES, RunFolder

UPDATES = st.lists(
    st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=3).map(lambda values: np.array(values, np.float32)),
    min_size=1,
    max_size=3,
)


def drawn(secret: bytes, number: int, name: str, update: list[np.ndarray]) -> bytes:
    return ClientSecrets(secret).noise(number, name, update).draw("noise", 32)


@given(UPDATES, UPDATES)
def test_the_same_update_has_the_same_noise_and_another_has_another(
    first: list[np.ndarray], second: list[np.ndarray]
) -> None:
    same = [array.tobytes() for array in first] == [array.tobytes() for array in second]
    assert (drawn(b"s", 1, "ann", first) == drawn(b"s", 1, "ann", second)) == same
    assert drawn(b"s", 1, "ann", first) == drawn(b"s", 1, "ann", [array.copy() for array in first])


@given(UPDATES)
def test_noise_differs_by_secret_round_and_client(update: list[np.ndarray]) -> None:
    cases = [(b"s", 1, "ann"), (b"t", 1, "ann"), (b"s", 2, "ann"), (b"s", 1, "bob"), (b"s", 11, "ann")]
    assert len({drawn(*case, update) for case in cases}) == len(cases)


def test_a_link_in_place_of_the_secret_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "clients.secret").symlink_to(victim)
    folder = RunFolder.create(tmp_path / "run", RunConfig())
    assert victim.read_text() == "precious"
    assert len(folder.secret()) == SECRET_BYTES


def test_a_file_that_others_can_read_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    before = tmp_path / "run" / "clients.secret"
    before.write_bytes(bytes(SECRET_BYTES))
    before.chmod(0o666)
    folder = RunFolder.create(tmp_path / "run", RunConfig())
    assert stat.S_IMODE(folder.secret_file.stat().st_mode) == 0o600
    assert folder.secret() != bytes(SECRET_BYTES)


def test_a_full_disk_leaves_no_secret_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match=r"cannot write .*: No space left on device"):
        RunFolder.create(tmp_path / "run", RunConfig())
    assert [path.name for path in (tmp_path / "run").iterdir() if path.name != ".lock"] == []


@pytest.mark.parametrize("name", ["clients.secret.draft", "config.toml.draft"])
def test_a_link_at_a_name_that_can_be_guessed_is_not_written_to(tmp_path: Path, name: str) -> None:
    """An attacker who may write to the folder above a run, but not to the target, could place such a link."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(victim)
    RunFolder.create(tmp_path / "run", RunConfig())
    assert victim.read_text() == "precious"


def test_a_secret_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", RunConfig())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(os.urandom(SECRET_BYTES))
    folder.secret_file.unlink()
    folder.secret_file.symlink_to(elsewhere)
    with pytest.raises(InputError, match="missing or incomplete"):
        folder.secret()


def test_no_repr_shows_a_secret() -> None:
    assert repr(ClientSecrets(b"hush")) == "<ClientSecrets (secret)>"
