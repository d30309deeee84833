"""Atomic file writes: a reader finds the old content or the new content, never a part.

The content is written to a draft in the same folder, which is then renamed. Only :func:`create_output` always writes in
place, and :func:`write_output` where the path needs it; a reader may then find a part. The draft has a random name and
is created exclusively. So a planted link is never followed, and two writers never share a draft, even on two machines
with equal process numbers. If writing fails, the draft is deleted, because it may contain a secret. Only a killed
process leaves a draft behind; :func:`remove_drafts` deletes it.

======================  ======================================  =============  ======================
function                use                                     on disk when   a link at the path
                                                                it returns
======================  ======================================  =============  ======================
:func:`write_file`      files that a program reads again        yes            is replaced
:func:`write_secret`    the same, readable by the owner only    yes            is replaced
:func:`write_once`      a secret that is never replaced         yes            counts as a file
:func:`reserve_secret`  an empty file for a secret              no             counts as a file
:func:`write_output`    output for the user, at a path that     no             is followed
                        the user may have chosen
:func:`create_output`   new output, written in place            no             counts as a file
======================  ======================================  =============  ======================

Errors of the operating system are raised as :class:`~coterie.errors.ConfigError` with the path.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from coterie.errors import ConfigError

Content = bytes | memoryview

_PUBLIC, _SECRET = 0o666, 0o600  # the umask of the process applies to the first, as usual
_DRAFT = ".draft"
_NAME_KEPT = 40  # characters of a file's name in the name of its draft; a name may have 255 bytes
_PLAIN = {
    errno.ENOENT: "there is no such file",
    errno.EISDIR: "it is a folder",
    errno.EEXIST: "it is a file, not a folder",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.ELOOP: "its links lead back to each other",
}
_NOT_REPLACEABLE = {errno.EACCES, errno.EPERM, errno.EBUSY, errno.EROFS}


def explain(error: OSError | ValueError) -> str:
    """Return why a file cannot be used, without the number of the error and the path, which the caller has."""
    if not isinstance(error, OSError):
        return str(error)
    return _PLAIN.get(error.errno or 0) or (error.strerror or str(error)).lower()


def write_file(path: Path, content: Content) -> None:
    """Replace a file. If the machine stops at any time, the file has its old content or the new one."""
    with _reported(path):
        with _draft(path, content, _PUBLIC, durable=True) as draft:
            draft.replace(path)
        _sync(path.parent)


def write_secret(path: Path, content: Content, *, until: float | None = None) -> None:
    """Replace a file like :func:`write_file`. Only its owner can read it, at any time.

    ``until`` becomes the file's modification time before the file is in place.
    """
    with _reported(path):
        with _draft(path, content, _SECRET, durable=True, time=until) as draft:
            draft.replace(path)
        _sync(path.parent)


def write_once(path: Path, content: Content) -> bool:
    """Write a secret unless the path exists already. Return whether it was written.

    Of several concurrent writers, one succeeds. The file system of the folder must have hard links.
    """
    written = True
    with _reported(path):
        with _draft(path, content, _SECRET, durable=True) as draft:
            try:
                os.link(draft, path)
            except FileExistsError:
                written = False
        _sync(path.parent)
    return written


def reserve_secret(path: Path) -> None:
    """Make an empty file that only its owner may read, for a library that writes the content itself.

    An existing file is not changed, nor are its permissions.
    """
    with _reported(path), suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _SECRET))


def write_output(path: Path, content: Content) -> None:
    """Write a file as a user expects: links are followed, permissions are kept, and devices and pipes are written to.

    A plain file is replaced atomically. It is written in place if replacing would change more than its content (it has
    another owner or several names), or is impossible (its folder is not writable, or it is a mount point).
    """
    with _reported(path):
        found = _stat(path)
        target = Path(os.path.realpath(path))
        if found is None or _may_replace(target, found):
            mode = _PUBLIC if found is None else stat.S_IMODE(found.st_mode)
            try:
                with _draft(target, content, mode, durable=False) as draft:
                    if found is not None:
                        draft.chmod(mode)
                    draft.replace(target)
                return
            except OSError as error:
                if found is None or error.errno not in _NOT_REPLACEABLE:
                    raise
        path.write_bytes(content)


def append_to(path: Path) -> BinaryIO:
    """Open a file for appending. A link or a pipe that somebody puts in its place meanwhile is not written to."""
    kept = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags | kept, _PUBLIC))


def create_output(path: Path, content: Content) -> bool:
    """Write a new output file. Return False if the path exists already."""
    with _reported(path):
        try:
            file = path.open("xb")
        except FileExistsError:
            return False
        try:
            with file:
                file.write(content)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    return True


def check_output(path: Path) -> None:
    """Raise an error if the path cannot be written. Nothing is changed; call it before long work."""
    with _reported(path):
        try:
            path.open("xb").close()
        except FileExistsError:
            if not path.is_fifo():  # opening a pipe waits for its reader, and closing it ends what the reader gets
                path.open("ab").close()
        else:
            path.unlink()


def private_folder(folder: Path) -> Path:
    """Return a private folder for secrets, created if missing. A folder that everybody can write to is refused.

    Missing parents are created private as well. Otherwise other users could replace the folder in them.
    """
    try:
        if not folder.is_dir():  # nodes look for theirs with every message
            for missing in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
                missing.mkdir(exist_ok=True, mode=0o700)
            folder.mkdir(exist_ok=True)
        mode = folder.stat().st_mode
    except OSError as error:
        raise ConfigError(f"{folder} cannot be a private folder: {error.strerror or error}") from None
    if mode & stat.S_IWOTH:
        raise ConfigError(f"everybody may write to {folder}: name a folder inside it, which is then made private")
    return folder


def is_draft(name: str) -> bool:
    """Whether a file's name ends like that of a draft."""
    return name.endswith(_DRAFT)


def remove_drafts(folder: Path) -> None:
    """Delete drafts that killed processes left in a folder. No other process may be writing to it."""
    for draft in folder.glob(f".*.{'[0-9a-f]' * 16}{_DRAFT}"):
        draft.unlink(missing_ok=True)


@contextmanager
def _draft(path: Path, content: Content, mode: int, *, durable: bool, time: float | None = None) -> Iterator[Path]:
    """Write the content to a new file next to the path. The file is deleted unless the caller moves it."""
    draft = path.with_name(f".{path.name[:_NAME_KEPT]}.{os.urandom(8).hex()}{_DRAFT}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if time is not None:
                os.utime(file.fileno(), (time, time))
            if durable:
                os.fsync(file.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Write a folder's entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _may_replace(target: Path, found: os.stat_result) -> bool:
    """Return whether a rename to ``target`` changes only the content of the file that was found."""
    plain = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink <= 1
    return plain and target.exists()  # an open but deleted file (/dev/fd/3) resolves to a name that does not exist


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from None
