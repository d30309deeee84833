"""The server's side of confined descent: the chain of models that it has sent, and how many each client has judged.

A model is on disk before it is sent, so a server that was killed continues with a chain that contains everything that
any node has seen. The chain with all its models is kept until the run is finished, because a returning node judges
every model that it missed, and a new node judges all.
"""

import secrets
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec
import numpy as np

from coterie.deployment.array_bytes import pack_arrays, unpack_arrays
from coterie.deployment.checkpoint import CheckpointFile
from coterie.deployment.displacement import NAME_BYTES, Displacement, next_link
from coterie.deployment.engine import Arrays
from coterie.errors import ConfigError, InputError
from coterie.files import private_folder


class _Chain(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The record on disk beside the models."""

    descent: bytes
    links: list[bytes]
    """The link after each model."""
    judged: dict[str, int]
    """A lower bound on the number of models that each client has judged."""
    task: str = ""
    """The function of the app whose losses decide about moves."""
    configuration: bytes = b""
    """The configuration of that function."""


class Descent:
    """One descent of a server."""

    def __init__(self, folder: Path, *, resume: bool) -> None:
        """Continue the descent in a folder, or begin a new one there."""
        self._folder = folder
        self._file = CheckpointFile(folder / "chain")
        content = self._file.read() if resume else None
        if content is None:
            shutil.rmtree(folder, ignore_errors=True)
            self._chain = _Chain(secrets.token_bytes(NAME_BYTES), [], {})
        else:
            try:
                self._chain = msgspec.msgpack.decode(content, type=_Chain)
            except ValueError:
                raise ConfigError(f"{self._file.path} is damaged; delete {folder} to begin a new descent") from None
        private_folder(folder)

    @property
    def name(self) -> bytes:
        """The random name of this descent."""
        return self._chain.descent

    def note_task(self, task: str, configuration: bytes) -> None:
        """Record the function of the app whose losses decide in this descent, and its configuration."""
        if (self._chain.task, self._chain.configuration) != (task, configuration):
            self._chain.task, self._chain.configuration = task, configuration
            self._save()

    def show(self, model: Arrays, present: Collection[str]) -> Displacement:
        """Append a model to the chain, unless it is already the last, and return the models to send to these clients.

        All get the same: the models from the first that any of them may have missed.
        """
        chain, before = self._chain, self._before(len(self._chain.links))
        last = len(chain.links) - 1
        if last < 0 or next_link(self._before(last), model) != chain.links[last]:
            if not all(np.isfinite(array).all() for array in model.values()):
                raise InputError("the model has NaN or infinite entries: no node could move by it, or by any after it")
            last += 1
            self._model(last).write(pack_arrays(model))
            chain.links.append(next_link(before, model))
            self._save()
        first = min(last, *(chain.judged.get(client, 0) for client in present)) if present else last
        missed = (self._read(number) for number in range(first, last))
        return Displacement(chain.descent, first, self._before(first), (*missed, model))

    def place(self) -> Displacement:
        """Return the end of the chain; only nodes that have reached it may evaluate their own models."""
        chain, number = self._chain, len(self._chain.links)
        return Displacement(
            chain.descent, number, self._before(number), task=chain.task, configuration=chain.configuration
        )

    def note_judged(self, clients: Iterable[str]) -> None:
        """Record that these clients have judged the whole chain."""
        self._chain.judged.update(dict.fromkeys(clients, len(self._chain.links)))
        self._save()

    def note_behind(self, clients: Iterable[str]) -> None:
        """Record that these clients have judged less than the server assumed."""
        if clients := list(clients):
            self._chain.judged.update(dict.fromkeys(clients, 0))
            self._save()

    def remove(self) -> None:
        """Delete the descent after its run is finished."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _before(self, number: int) -> bytes:
        return self._chain.links[number - 1] if number else self._chain.descent

    def _model(self, number: int) -> CheckpointFile:
        return CheckpointFile(self._folder / f"model-{number}")

    def _read(self, number: int) -> Arrays:
        if (content := self._model(number).read()) is None:
            raise ConfigError(f"{self._model(number).path} is missing; delete {self._folder} to begin a new descent")
        return unpack_arrays(content)

    def _save(self) -> None:
        self._file.write(msgspec.msgpack.encode(self._chain))
