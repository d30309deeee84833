"""Files are written whole: with concurrent writers, killed processes, and anything at the path."""

import errno
import os
import re
import resource
import shutil
import signal
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coterie
from coterie.errors import ConfigError
from coterie.files import (
    check_output,
    create_output,
    private_folder,
    remove_drafts,
    write_file,
    write_once,
    write_output,
    write_secret,
)

Write = Callable[[Path, bytes], object]
REPLACING: list[Write] = [write_file, write_secret, write_output]
EXCLUSIVE: list[Write] = [write_once, create_output]
DRAFTED: list[Write] = [*REPLACING, write_once]
NOBODY = 65534


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def umask(value: int) -> Iterator[None]:
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def closed() -> Iterator[Path]:
    """A folder that this process may read and not write to, also if the tests run as root."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "closed")
        folder.mkdir()
        (folder / "there").write_bytes(b"before")
        root = os.geteuid() == 0
        if root:
            os.chown(folder / "there", NOBODY, NOBODY)
            Path(name).chmod(0o755)
        folder.chmod(0o555)
        try:
            if root:
                os.seteuid(NOBODY)
            yield folder
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o755)


@settings(max_examples=25)  # each waits for the disk
@given(st.binary(max_size=1000), st.binary(max_size=1000))
def test_a_written_file_is_read_back_and_no_draft_is_left(first: bytes, second: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        for write in REPLACING:
            write(path, first)
            assert path.read_bytes() == first
            write(path, memoryview(second))  # type: ignore[arg-type]
            assert path.read_bytes() == second
            assert names(Path(folder)) == ["file"]


@pytest.mark.parametrize("write", EXCLUSIVE)
def test_a_file_that_is_there_is_not_replaced_by_an_exclusive_write(tmp_path: Path, write: Write) -> None:
    path = tmp_path / "key"
    assert write(path, b"first") is True
    assert write(path, b"second") is False
    assert path.read_bytes() == b"first"
    assert names(tmp_path) == ["key"]


@pytest.mark.parametrize("write", EXCLUSIVE)
def test_of_many_exclusive_writers_one_succeeds(tmp_path: Path, write: Write) -> None:
    """Threads here; on a volume that containers share, processes have the same numbers, too."""
    for number in range(20):
        path, begin = tmp_path / f"{number}", threading.Barrier(4)

        def attempt(content: bytes, path: Path = path, begin: threading.Barrier = begin) -> bytes:
            begin.wait()
            return content if write(path, content) else b""

        with ThreadPoolExecutor(4) as pool:
            contents = [bytes([65 + place]) * 10_000 for place in range(4)]
            assert [written for written in pool.map(attempt, contents) if written] == [path.read_bytes()]


@pytest.mark.parametrize("write", REPLACING)
def test_concurrent_writers_never_show_a_part_of_a_file(tmp_path: Path, write: Write) -> None:
    path, begin = tmp_path / "file", threading.Barrier(5)
    contents = {bytes([65 + place]) * (50_000 + place) for place in range(4)}
    path.write_bytes(b"before")

    def replace(content: bytes) -> None:
        begin.wait()
        for _ in range(10):
            write(path, content)

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(replace, content) for content in contents]
        begin.wait()
        while not all(writer.done() for writer in writers):
            assert path.read_bytes() in contents | {b"before"}
        for writer in writers:
            writer.result()
    assert path.read_bytes() in contents
    assert names(tmp_path) == ["file"]


def killed_at(call: str, write: Write, path: Path) -> None:
    """Write in a child process that dies by SIGKILL when it is about to make this call."""
    child = os.fork()
    if child == 0:
        owner: object = Path if call == "replace" else os
        setattr(owner, call, lambda *_args: os.kill(os.getpid(), signal.SIGKILL))
        os.umask(0)
        write(path, b"after")
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"{write} does not call {call}"
    assert os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.parametrize(
    ("write", "call"),
    [(write_file, "fsync"), (write_secret, "fsync"), *((write, "replace") for write in REPLACING)],
)
def test_a_process_killed_before_the_rename_leaves_the_old_file(tmp_path: Path, write: Write, call: str) -> None:
    path, other = tmp_path / "file", tmp_path / ".file.other"
    path.write_bytes(b"before")
    path.chmod(0o640)
    other.write_bytes(b"not a draft")
    killed_at(call, write, path)
    assert path.read_bytes() == b"before"
    assert mode(path) == 0o640
    (draft,) = set(tmp_path.iterdir()) - {path, other}
    assert draft.read_bytes() == b"after"
    modes: dict[Write, int] = {write_file: 0o666, write_secret: 0o600, write_output: 0o640}
    assert mode(draft) == modes[write]
    remove_drafts(tmp_path)
    assert names(tmp_path) == [".file.other", "file"]


def test_a_process_killed_before_an_exclusive_write_is_in_place_leaves_no_file(tmp_path: Path) -> None:
    killed_at("link", write_once, tmp_path / "key")
    (draft,) = tmp_path.iterdir()
    assert mode(draft) == 0o600
    assert write_once(tmp_path / "key", b"again")
    remove_drafts(tmp_path)
    assert names(tmp_path) == ["key"]


def test_files_that_must_survive_a_crash_are_on_disk_before_their_names_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace, link = os.fsync, Path.replace, os.link

    def synced(descriptor: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def replaced(draft: Path, path: Path) -> Path:
        calls.append("name")
        return replace(draft, path)

    def linked(draft: Path, path: Path) -> None:
        calls.append("name")
        link(draft, path)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    monkeypatch.setattr(Path, "replace", replaced)
    for write in write_file, write_secret, write_once:
        calls.clear()
        write(tmp_path / write.__name__, b"content")
        assert calls == ["file", "name", "folder"]
    calls.clear()
    write_output(tmp_path / "page", b"content")
    assert calls == ["name"]


@pytest.mark.parametrize("write", [*REPLACING, *EXCLUSIVE])
@given(value=st.sampled_from([0, 0o002, 0o022, 0o027, 0o077]))
def test_the_umask_applies_to_all_files_but_secrets(write: Write, value: int) -> None:
    with tempfile.TemporaryDirectory() as folder, umask(value):
        write(Path(folder, "file"), b"content")
        secret = write in (write_secret, write_once)
        assert mode(Path(folder, "file")) == (0o600 if secret else 0o666 & ~value)


@given(before=st.sampled_from([0o600, 0o640, 0o644, 0o666, 0o755]))
def test_only_an_output_keeps_the_permissions_of_the_file_it_replaces(before: int) -> None:
    with tempfile.TemporaryDirectory() as folder, umask(0o022):
        path = Path(folder, "file")
        for write, after in (write_output, before), (write_file, 0o644), (write_secret, 0o600):
            path.write_bytes(b"before")
            path.chmod(before)
            write(path, b"after")
            assert mode(path) == after


def test_a_secret_has_its_time_from_the_start(tmp_path: Path) -> None:
    write_secret(tmp_path / "state", b"secret", until=2_000_000_000.0)
    assert (tmp_path / "state").stat().st_mtime == 2_000_000_000


@pytest.mark.parametrize("write", [write_file, write_secret])
@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_at_the_path_is_replaced(tmp_path: Path, write: Write, dangling: bool) -> None:
    victim, path = tmp_path / "victim", tmp_path / "file"
    if not dangling:
        victim.write_bytes(b"precious")
    path.symlink_to(victim)
    write(path, b"content")
    assert not path.is_symlink()
    assert path.read_bytes() == b"content"
    assert not victim.exists() if dangling else victim.read_bytes() == b"precious"


@pytest.mark.parametrize("write", EXCLUSIVE)
def test_a_link_at_the_path_stops_an_exclusive_write(tmp_path: Path, write: Write) -> None:
    (tmp_path / "file").symlink_to(tmp_path / "victim")
    assert write(tmp_path / "file", b"content") is False
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_that_a_user_chose_is_followed(tmp_path: Path, dangling: bool) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, path = tmp_path / "elsewhere" / "page", tmp_path / "link"
    if not dangling:
        target.write_bytes(b"before")
    path.symlink_to(target)
    write_output(path, b"after")
    assert path.is_symlink()
    assert target.read_bytes() == b"after"
    assert names(target.parent) == ["page"]


@pytest.mark.parametrize("write", DRAFTED)
@pytest.mark.parametrize("planted", [".file.{pid}", "file.draft", ".file.draft", "file.tmp"])
def test_links_at_names_that_can_be_guessed_are_not_followed(tmp_path: Path, write: Write, planted: str) -> None:
    (tmp_path / planted.format(pid=os.getpid())).symlink_to(tmp_path / "victim")
    write(tmp_path / "file", b"secret")
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("write", DRAFTED)
def test_a_link_at_the_drafts_own_name_is_not_followed(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the name could be guessed: a draft is a new file, or it is refused."""
    monkeypatch.setattr(os, "urandom", bytes)
    (tmp_path / f".file.{'00' * 8}.draft").symlink_to(tmp_path / "victim")
    with pytest.raises(ConfigError, match=r"cannot write .*file: File exists"):
        write(tmp_path / "file", b"secret")
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("write", DRAFTED)
def test_a_full_disk_leaves_the_old_file_and_no_draft(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").write_bytes(b"before")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for owner, name in (os, "fsync"), (os, "link"), (Path, "replace"):
        monkeypatch.setattr(owner, name, full)
    with pytest.raises(ConfigError, match=r"cannot write .*state: No space left on device$"):
        write(tmp_path / "state", b"secret")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("state", b"before")]


@pytest.mark.parametrize("write", [*REPLACING, *EXCLUSIVE])
def test_a_write_that_ends_half_way_leaves_no_part(tmp_path: Path, write: Write) -> None:
    there = [tmp_path / "file"] if write in REPLACING else []
    for path in there:
        path.write_bytes(b"before")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(ConfigError, match=r"cannot write .*file: File too large"):
            write(tmp_path / "file", bytes(20_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"before"] * len(there)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_device_that_fails_is_reported_and_not_replaced() -> None:
    with pytest.raises(ConfigError, match=r"\Acannot write /dev/full: No space left on device\Z"):
        write_output(Path("/dev/full"), b"page")
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


@pytest.mark.parametrize("write", [*REPLACING, *EXCLUSIVE, lambda path, _content: check_output(path)])
@pytest.mark.parametrize("where", ["missing/file", "plain/file"])
def test_a_path_that_leads_nowhere_is_refused_in_one_line(tmp_path: Path, write: Write, where: str) -> None:
    (tmp_path / "plain").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"\Acannot write .*/file: (No such file or|Not a) directory\Z"):
        write(tmp_path / where, b"secret")
    assert names(tmp_path) == ["plain"]


@pytest.mark.parametrize("write", [*REPLACING, lambda path, _content: check_output(path)])
def test_a_folder_at_the_path_is_refused_in_one_line(tmp_path: Path, write: Write) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(ConfigError, match=r"\Acannot write .*/file: Is a directory\Z"):
        write(tmp_path / "file", b"secret")
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("write", [*REPLACING, *EXCLUSIVE, lambda path, _content: check_output(path)])
def test_a_folder_that_may_not_be_written_to_is_reported_in_one_line(closed: Path, write: Write) -> None:
    with pytest.raises(ConfigError, match=r"\Acannot write .*/closed/new: Permission denied\Z") as caught:
        write(closed / "new", b"hush")
    assert "hush" not in str(caught.value)
    assert names(closed) == ["there"]


def test_a_file_that_may_be_written_to_in_a_folder_that_may_not_is_written_in_place(closed: Path) -> None:
    check_output(closed / "there")
    write_output(closed / "there", b"after")
    assert (closed / "there").read_bytes() == b"after"
    for write in write_file, write_secret:
        with pytest.raises(ConfigError, match="Permission denied"):
            write(closed / "there", b"never")
    assert (closed / "there").read_bytes() == b"after"


def test_a_mount_point_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(Path, "replace", busy)
    (tmp_path / "page").write_bytes(b"before")
    write_output(tmp_path / "page", b"after")
    assert (tmp_path / "page").read_bytes() == b"after"
    assert names(tmp_path) == ["page"]


def test_an_output_with_two_names_keeps_both(tmp_path: Path) -> None:
    (tmp_path / "page").write_bytes(b"before, and longer")
    os.link(tmp_path / "page", tmp_path / "other")
    write_output(tmp_path / "page", b"after")
    assert (tmp_path / "other").read_bytes() == b"after"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_an_output_keeps_its_owner(tmp_path: Path) -> None:
    (tmp_path / "page").write_bytes(b"before")
    os.chown(tmp_path / "page", NOBODY, NOBODY)
    write_output(tmp_path / "page", b"after")
    assert (tmp_path / "page").stat().st_uid == NOBODY
    assert (tmp_path / "page").read_bytes() == b"after"


def test_a_pipe_that_a_user_chose_gets_the_content_and_stays_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    check_output(path)  # although there is no reader yet
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(path.read_bytes)
        check_output(path)
        write_output(path, b"page")
        assert reader.result(10) == b"page"
    assert stat.S_ISFIFO(path.stat().st_mode)


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="no such names of open files")
def test_an_open_file_gets_the_content_also_if_it_has_no_name(tmp_path: Path) -> None:
    out, into = os.pipe()
    write_output(Path(f"/dev/fd/{into}"), b"page")
    assert os.read(out, 100) == b"page"
    os.close(out)
    os.close(into)
    with (tmp_path / "gone").open("w+b") as file:
        (tmp_path / "gone").unlink()
        write_output(Path(f"/dev/fd/{file.fileno()}"), b"page")
        assert file.read() == b"page"
    assert names(tmp_path) == []


def test_names_may_be_as_long_as_the_system_allows(tmp_path: Path) -> None:
    for number, write in enumerate(REPLACING):
        for name in f"{number}" + "n" * 254, f"{number}" + "ü" * 127:
            write(tmp_path / name, b"content")
            assert (tmp_path / name).read_bytes() == b"content"


def test_checking_an_output_changes_nothing(tmp_path: Path) -> None:
    check_output(tmp_path / "new")
    assert names(tmp_path) == []
    (tmp_path / "old").write_bytes(b"before")
    check_output(tmp_path / "old")
    assert (tmp_path / "old").read_bytes() == b"before"


@pytest.mark.parametrize("value", [0, 0o022])
def test_private_folders_and_those_above_them_are_closed_to_others(tmp_path: Path, value: int) -> None:
    with umask(value):
        assert private_folder(tmp_path / "a" / "b" / "c") == tmp_path / "a" / "b" / "c"
    assert {mode(tmp_path / folder) for folder in ("a", "a/b", "a/b/c")} == {0o700}
    (tmp_path / "a").chmod(0o755)
    private_folder(tmp_path / "a" / "b")
    assert mode(tmp_path / "a") == 0o755, "what is there stays as it is"


@pytest.mark.parametrize("others", [0o777, 0o1777, 0o702])
def test_a_folder_that_everybody_may_write_to_is_not_private(tmp_path: Path, others: int) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(others)
    with pytest.raises(ConfigError, match=r"everybody may write to .*shared: name a folder inside it"):
        private_folder(shared)
    assert mode(private_folder(shared / "mine")) == 0o700


def test_a_private_folder_that_cannot_be_made_is_refused_in_one_line(tmp_path: Path, closed: Path) -> None:
    for folder, why in (closed / "new", "Permission denied"), (closed / "there", "File exists"):
        with pytest.raises(ConfigError, match=rf"\A.*/{folder.name} cannot be a private folder: {why}\Z"):
            private_folder(folder)


def test_only_drafts_are_removed(tmp_path: Path) -> None:
    kept = ["checkpoint", ".lock", ".a.draft", "a.0123456789abcdef.draft", ".a.0123456789abcde.draft"]
    for name in [*kept, ".a.b.0123456789abcdef.draft"]:
        (tmp_path / name).touch()
    remove_drafts(tmp_path)
    assert names(tmp_path) == sorted(kept)
    shutil.rmtree(tmp_path)
    remove_drafts(tmp_path)


def test_no_other_module_replaces_files_on_its_own() -> None:
    root = Path(coterie.__file__).parent
    own_ways = re.compile(r"os\.(replace|rename|link)\(|mkstemp|NamedTemporaryFile|\.draft\b|O_EXCL")
    found = {path.name for path in root.rglob("*.py") if own_ways.search(path.read_text(encoding="utf-8"))}
    assert found == {"files.py"}
