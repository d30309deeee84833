"""The file of a server's checkpoint: one run at a time keeps it, and a damaged one is recognised.

What is in it is up to the engine. What was revealed is not in it but in the ledger, which no checkpoint takes back.
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
        """Name a file; one that another run keeps is neither read nor written."""
        self.path, self.ours = path, ours

    @classmethod
    @contextmanager
    def hold(cls, path: Path, *, resume: bool) -> "Iterator[CheckpointFile]":
        """Keep a checkpoint for one run until it ends; another run that would resume is refused meanwhile.

        A run that begins anew may run beside it, without a checkpoint.
        """
        with lock(path.with_name(f".{path.name}.lock"), wait=False) as ours:
            if not ours and resume:
                raise ConfigError(
                    "another run of this app is alive and keeps its checkpoint: wait until it has ended, pass "
                    "resume=False to begin anew without a checkpoint, or run a different app"
                )
            if not ours:
                LOGGER.warning("another run of this app is alive; this one keeps no checkpoint")
            yield cls(path, ours=ours)

    def write(self, content: bytes) -> None:
        """Replace the checkpoint, on disk when this returns."""
        if self.ours:
            write_secret(self.path, hashlib.sha256(content).digest() + content)

    def read(self) -> bytes | None:
        """Return the content; None if there is no checkpoint of ours."""
        if not self.ours or not self.path.exists():
            return None
        stored = self.path.read_bytes()
        content = stored[hashlib.sha256().digest_size :]
        if hashlib.sha256(content).digest() + content != stored:
            raise ConfigError(f"{self.path} is not a checkpoint (it is damaged); delete it to begin anew")
        return content

    def remove(self) -> None:
        """Delete the checkpoint: its run is finished."""
        if self.ours:
            self.path.unlink(missing_ok=True)
