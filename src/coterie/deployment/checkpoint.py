"""The file of a server's checkpoint. Only one run at a time uses it, and damage is detected.

The engine decides about its content. The history of revealed sums is in the ledger, and restoring a checkpoint does not
change it.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coterie.deployment.logs import LOGGER
from coterie.errors import ConfigError
from coterie.files import write_secret
from coterie.locks import lock


class CheckpointFile:
    """The checkpoint of an app's run: a checksum, then the content."""

    def __init__(self, path: Path, *, ours: bool = True) -> None:
        """Use a file; if another run holds it, it is neither read nor written."""
        self.path, self.ours = path, ours

    @classmethod
    @contextmanager
    def hold(cls, path: Path, *, resume: bool) -> "Iterator[CheckpointFile]":
        """Hold the checkpoint for one run until it ends. Meanwhile, another run that wants to resume is refused.

        A new run may run at the same time, without a checkpoint.
        """
        with lock(path.with_name(f".{path.name}.lock"), wait=False) as ours:
            if not ours and resume:
                raise ConfigError(
                    "another run of this app is still running and writes its checkpoint: wait until it has ended, "
                    "pass resume=False to start again without a checkpoint, or run a different app"
                )
            if not ours:
                LOGGER.warning("another run of this app is still running; this one writes no checkpoint")
            yield cls(path, ours=ours)

    def write(self, content: bytes) -> None:
        """Replace the checkpoint; it is on disk when this returns."""
        if self.ours:
            write_secret(self.path, hashlib.sha256(content).digest() + content)

    def read(self) -> bytes | None:
        """Return the content; None if this run has no checkpoint."""
        if not self.ours or not self.path.exists():
            return None
        stored = self.path.read_bytes()
        content = stored[hashlib.sha256().digest_size :]
        if hashlib.sha256(content).digest() + content != stored:
            raise ConfigError(f"{self.path} is not a checkpoint (it is damaged); delete it to start again")
        return content

    def remove(self) -> None:
        """Delete the checkpoint after its run is finished."""
        if self.ours:
            self.path.unlink(missing_ok=True)
