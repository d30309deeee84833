"""A node's own model in confined descent. It stays on the node's disk, is moved by public steps, and is never sent.

The start is the server's first model plus ``spread`` times normal random numbers. They are derived from the node's
private identity key, so a server that begins again and again at one model learns nothing new, even after the node's
folder was restored from a backup. With another spread, the difference of two sums at one model would depend on this
node only, so the node refuses it. Each further public model defines a move: its difference to the previous one. The
app's function runs on the node's own model and on the moved one. The move is refused permanently if the loss increases
by more than ``threshold``. The number of runs of the function does not depend on the decision, and a decision is
visible only in the sums. Evaluation uses the node's own model without a decision about moves: otherwise two functions
of an app could disagree on a move, and the server could choose which one decides.

The private numbers are kept apart from the moves, and added when the model is used. Otherwise a move to very large
numbers and back would round them away, and every node's own model would equal the public one.

A node that was away judges every model that it missed, in order; :mod:`~coterie.deployment.displacement` explains why.
Its model and its decisions are on disk before a contribution is sent. Decisions depend only on the chain and the node's
data, so a node that is killed in between makes the same ones again.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from coterie.arithmetic.quantize import FloatArray
from coterie.crypto.agreement import derive
from coterie.crypto.context import bind, digest
from coterie.crypto.keystream import SEED_BYTES, apply_masks
from coterie.crypto.signing import Identity
from coterie.deployment.array_bytes import pack_arrays, unpack_arrays
from coterie.deployment.checkpoint import CheckpointFile
from coterie.deployment.confinement import Confinement
from coterie.deployment.displacement import Displacement
from coterie.deployment.engine import TRAIN, AppReply, Arrays, kind_of
from coterie.deployment.first_use import task_name
from coterie.deployment.form import number_in
from coterie.deployment.logs import LOGGER, quote
from coterie.deployment.reasons import Reason
from coterie.deployment.recipe import check_confinable
from coterie.deployment.replies import reply_error
from coterie.errors import ConfigError, InputError, PeerProtocolError, regarding
from coterie.files import private_folder
from coterie.locks import lock
from coterie.privacy.encoding import clip_norm
from coterie.secagg.messages import SERVER

RunApp: TypeAlias = Callable[[Arrays], AppReply]
"""Runs the app's function on a model, and checks the structure of its reply."""

Fix: TypeAlias = Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
"""Stores values by name permanently, and returns the stored ones: the first values are kept."""

FOLDER, ENDING = "confined", ".model"
_SECRET_BYTES = 32
_SPREAD, _SHAPES = "confined spread", "confined arrays"  # in the node's memory
_KEPT = 3  # descents whose models are kept; a server may begin any number of them
_LARGEST = 1e30  # replaces infinite entries; the widest range of a recipe


class OwnModel(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A node's state in one descent."""

    descent: bytes
    task: str
    """The only function of the app that judges moves in this descent."""
    judged: int
    """The number of public models that this node has judged."""
    link: bytes
    """The link of the chain after the last judged model."""
    refused: int
    """The number of consecutive refused moves up to the last one."""
    seen: bytes
    """The last public model."""
    moved: bytes
    """The first public model plus the accepted moves, in float64."""
    start: bytes
    """The private numbers, in float64; the node's own model is ``moved`` plus these."""
    judging: bytes = b""
    """Identifies the node and the configuration of its function. A model with another value here is ignored."""

    def __repr__(self) -> str:
        return f"<OwnModel after {self.judged} models>"


class ConfinedNode:
    """The node's side of a descent."""

    def __init__(
        self,
        folder: Path,
        confinement: Confinement,
        name: str,
        secret: bytes,
        judging: bytes,
        fix: Fix,
        fix_configuration: Callable[[], None],
        spread: float | None = None,
    ) -> None:
        """Open the models in a node's folder.

        Args:
            folder: the node's folder.
            confinement: the part of the recipe that its roster fixes.
            name: the node's name, for its log.
            secret: the start is derived from it (:func:`start_secret`).
            judging: identifies the node and the configuration of the function that judges. A folder may outlive both: a
                node that is enrolled under another name, or has lost its memory, does not continue with the models
                there.
            fix: stores permanent values in the node's memory.
            fix_configuration: stores the configuration of the app's function, or refuses another one than the first. It
                is called before an own model is written, so every stored model was judged under this configuration.
            spread: the node's own lambda; None means the roster's.

        """
        self._fix, self._fix_configuration = fix, fix_configuration
        self._folder = private_folder(folder / FOLDER)
        self._confinement, self._name, self._secret, self._judging = confinement, name, secret, judging
        self._spread = confinement.spread if spread is None else spread

    def reply(self, shown: Displacement | None, function: str, run: RunApp) -> AppReply:
        """Judge the models shown, and return the reply of the app's function as if it had worked on the public model.

        Its arrays are the public model plus the change that the app made to the node's own model.
        """
        trains = kind_of(function) == TRAIN
        with regarding(Reason.FORM):
            if shown is None:
                raise PeerProtocolError(
                    SERVER, "showed no displacement, and this roster's nodes train their own models"
                )
            if bool(shown.models) != trains:
                raise PeerProtocolError(SERVER, "showed a model in an evaluation, or none in training")
            _check_models(shown.models, self._confinement)
        with lock(self._folder / f".{_name(shown.descent)}.lock", wait=True):
            file = CheckpointFile(self._folder / f"{_name(shown.descent)}{ENDING}")
            with regarding(Reason.SETTINGS):
                found = _read(file)
                kept = found if found is not None and found.judging == self._judging else None
            own = _Judgement(self._confinement, run, kept, shown, self._start, self._name)
            own.check_chain()
            own.check_task(kept, task_name(function) if trains else shown.task)
            if not trains:
                return own.evaluate()
            reply = own.follow()
            self._fix_configuration()
            with regarding(Reason.SETTINGS):
                file.write(msgspec.msgpack.encode(own.to_own_model(task_name(function), self._judging)))
            if found is None:
                self._forget()
        return own.contribution(reply, shown.models[-1])

    def _start(self, anchor: Arrays) -> tuple[Mapping[str, FloatArray], Mapping[str, FloatArray]]:
        """Return the start of a descent: the part that moves, and the private numbers that never change."""
        self._check_start(anchor)
        private = {name: self._spread * _normals(self._secret, name, array.shape) for name, array in anchor.items()}
        return {name: np.asarray(array, np.float64) for name, array in anchor.items()}, private

    def _check_start(self, anchor: Arrays) -> None:
        """Refuse another start than the first: sums over one circle with two starts of one node expose that node.

        A start depends on the names and shapes of the arrays, which must be the same for all functions of an app: a
        server that can choose among many starts could average them out.
        """
        arrays = digest(bind("confined arrays", *(f"{name} {shape}".encode() for name, shape, _ in _kinds(anchor))))
        kept = self._fix({_SPREAD: repr(self._spread).encode(), _SHAPES: arrays})
        if (first := kept[_SPREAD].decode()) != repr(self._spread):
            raise _another_start(f"the spread is {self._spread!r}, and was {first} at first: set coterie-spread back")
        if kept[_SHAPES] != arrays:
            raise _another_start("the model has arrays of other names or shapes than this node's first model had")

    def _forget(self) -> None:
        """Delete the models of all but the last few descents."""
        found = sorted(self._folder.glob(f"*{ENDING}"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in found[_KEPT:]:
            lock_file = self._folder / f".{path.stem}.lock"
            with lock(lock_file, wait=False) as held:
                if held:  # otherwise another process is using it
                    path.unlink(missing_ok=True)
                    lock_file.unlink(missing_ok=True)


class _Judgement:
    """The work on one request: it judges the models that are shown, and runs the app's function on the own model."""

    def __init__(
        self,
        confinement: Confinement,
        run: RunApp,
        kept: OwnModel | None,
        shown: Displacement,
        start: Callable[[Arrays], tuple[Mapping[str, FloatArray], Mapping[str, FloatArray]]],
        name: str,
    ) -> None:
        self._confinement, self._run, self._shown, self._begin, self._name = confinement, run, shown, start, name
        self._links = shown.links()
        self._judged = kept.judged if kept else 0
        self._link = kept.link if kept else shown.descent
        self._refused = kept.refused if kept else 0
        self._seen: Arrays = unpack_arrays(kept.seen) if kept else {}
        self._moved: Mapping[str, FloatArray] = unpack_arrays(kept.moved) if kept else {}
        self._start: Mapping[str, FloatArray] = unpack_arrays(kept.start) if kept else {}
        self._sent: Arrays = {}
        self._reply: AppReply | None = None

    def check_chain(self) -> None:
        """Refuse a chain that does not begin with the models this node has judged, or lacks models it has missed."""
        shown = self._shown
        if self._judged < shown.first or (not shown.models and not self._judged):
            with regarding(Reason.BEHIND):
                raise PeerProtocolError(
                    SERVER, f"showed models from number {shown.first} on, and this node has judged {self._judged}"
                )
        if self._seen and shown.models and _kinds(self._seen) != _kinds(shown.models[-1]):
            with regarding(Reason.FORM):
                raise PeerProtocolError(SERVER, "showed models with different arrays in one descent")
        if self._judged > shown.end or self._links[self._judged - shown.first] != self._link:
            with regarding(Reason.CHAIN):
                raise PeerProtocolError(
                    SERVER,
                    "has shown this node other models than this chain has: nodes that judged different models must "
                    "not be summed. A new descent (resume=False) begins a new chain",
                )

    def check_task(self, kept: OwnModel | None, task: str) -> None:
        """Refuse to judge by another function than the first, because the server could choose the one that decides.

        For the same reason, own models are evaluated only together with others that the same function judged.
        """
        if kept is not None and kept.task != task:
            with regarding(Reason.CHAIN):
                raise PeerProtocolError(SERVER, f"asks for {quote(task)} in a descent that {kept.task!r} judges")

    def evaluate(self) -> AppReply:
        """Return the reply of the app's function for the node's own model, without a move."""
        return self._at(self._moved)

    def follow(self) -> AppReply:
        """Judge every model not judged before; return the reply of the app's function for the node's own model."""
        for number, model in enumerate(self._shown.models, self._shown.first):
            if number < self._judged:
                continue
            if number == 0:
                self._moved, self._start = self._begin(model)
                LOGGER.info("%s: begins a descent at a private start", self._name)
                self._check_repeatable()
            else:
                self._judge(model, number)
            self._seen, self._judged = model, number + 1
        self._link = self._links[-1]
        return self._reply or self._at(self._moved)

    def _check_repeatable(self) -> None:
        """Warn if the app's function gives different answers for one model: the loss check would then judge noise."""
        if self._confinement.threshold is None:
            return
        first, (second, _) = self._at(self._moved), self._run_on(self._moved)
        alike = [_equal(first.arrays[name], second.arrays[name]) for name in self._moved]
        if not all(alike) or not _equal(self._loss(first), self._loss(second)):
            words = (
                "%s: the app's function returned different results for the same model, so chance decides about moves: "
                "let it take one step on all examples, without dropout"
            )
            LOGGER.warning(words, self._name)

    def _judge(self, model: Arrays, number: int) -> None:
        moved = {
            key: here + (np.asarray(model[key], np.float64) - np.asarray(self._seen[key], np.float64))
            for key, here in self._moved.items()
        }
        threshold = self._confinement.threshold
        if threshold is None:
            self._moved, self._reply = moved, None
            return
        before = self._reply or self._at(self._moved)
        after, sent = self._run_on(moved)
        taken = self._loss(after) - self._loss(before) <= threshold  # not if a loss is NaN
        taken = taken and _within(moved, self._confinement, model)
        if taken:
            self._moved, self._reply, self._sent, self._refused = moved, after, sent, 0
        else:
            self._refused += 1
        LOGGER.info("%s: %s the move to model %s", self._name, "takes" if taken else "refuses", number)

    def _at(self, moved: Mapping[str, FloatArray]) -> AppReply:
        self._reply, self._sent = self._run_on(moved)
        return self._reply

    def _run_on(self, moved: Mapping[str, FloatArray]) -> tuple[AppReply, Arrays]:
        """Run the app's function on the node's own model after these moves, in the types of the public model."""
        like = self._seen or self._shown.models[-1]
        sent = {name: np.asarray(array, like[name].dtype) for name, array in _sum(moved, self._start).items()}
        return self._run(sent), sent

    def _loss(self, reply: AppReply) -> float:
        try:
            return number_in(reply.metrics, self._confinement.loss)
        except InputError as error:
            raise reply_error(Reason.LOSS, str(error)) from None

    def to_own_model(self, task: str, judging: bytes) -> OwnModel:
        """Return the state to store on the node's disk."""
        seen, moved, start = map(pack_arrays, (self._seen, self._moved, self._start))
        shown = self._shown
        return OwnModel(shown.descent, task, self._judged, self._link, self._refused, seen, moved, start, judging)

    def contribution(self, reply: AppReply, public: Arrays) -> AppReply:
        """Return the reply for the node's own model, with arrays as if the app had moved the public model."""
        changes = [self._change(name, reply.arrays[name]) for name in public]
        tau = self._confinement.tau
        if tau is not None and self._refused >= tau:
            words = "%s: refused the last %s moves, and contributes no change until it takes one"
            LOGGER.info(words, self._name, self._refused)
            changes = [np.zeros_like(change) for change in changes]
        clipped = clip_norm(changes, self._confinement.norm)
        arrays = {
            name: np.asarray(array, np.float64) + change
            for (name, array), change in zip(public.items(), clipped, strict=True)
        }
        return AppReply(arrays, reply.metrics)

    def _change(self, name: str, now: NDArray[Any]) -> FloatArray:
        """Return the app's change of the model. Every value is accepted: NaN is no change, infinity a large number."""
        with np.errstate(invalid="ignore", over="ignore"):
            moved = np.asarray(now, np.float64) - np.asarray(self._sent[name], np.float64)
        return np.asarray(np.clip(np.nan_to_num(moved, nan=0.0), -_LARGEST, _LARGEST))


def start_secret(identity: Identity) -> bytes:
    """Return the secret that a node's start follows from; it can be computed from the identity key."""
    return derive(identity.secret(), bind("confined start secret"), _SECRET_BYTES)


def own_model(folder: Path | str, descent: bytes | None = None) -> Mapping[str, FloatArray]:
    """Return a node's own model, of the latest descent or a given one, for its operator's use.

    ``folder`` is the node's: ``coterie-folder`` of its configuration.
    """
    place = own_state(folder, descent)
    return _sum(unpack_arrays(place.moved), unpack_arrays(place.start))


def own_state(folder: Path | str, descent: bytes | None = None) -> OwnModel:
    """Return the state of a node in the latest descent, or a given one."""
    files = sorted(Path(folder, FOLDER).glob(f"*{ENDING}"), key=lambda path: path.stat().st_mtime)
    wanted = [path for path in files if descent is None or path.stem == _name(descent)]
    if not wanted or (kept := _read(CheckpointFile(wanted[-1]))) is None:
        raise ConfigError(f"{Path(folder)} has no model of its own: the node has not taken part in confined descent")
    return kept


def _another_start(problem: str) -> ConfigError:
    error = ConfigError(f"{problem}, or enrol the node under another name. A start never changes")
    error.about = Reason.SETTINGS
    return error


def _read(file: CheckpointFile) -> OwnModel | None:
    content = file.read()
    if content is None:
        return None
    try:
        return msgspec.msgpack.decode(content, type=OwnModel)
    except ValueError:
        raise ConfigError(f"{file.path} is not a model of this node") from None


def _check_models(models: Sequence[Arrays], confinement: Confinement) -> None:
    """Refuse public models that no node can use, or that do not fit each other."""
    for model in models:
        try:
            check_confinable(model)
        except ConfigError as error:
            raise PeerProtocolError(SERVER, f"showed a model that cannot be confined: {error}") from None
    for model in models:
        if _kinds(model) != _kinds(models[-1]):
            raise PeerProtocolError(SERVER, "showed models with different arrays in one descent")
        if not all(np.isfinite(array).all() for array in model.values()):
            raise PeerProtocolError(SERVER, "showed a model with NaN or infinite entries")
        if not _within(model, confinement, model):
            raise PeerProtocolError(
                SERVER,
                f"showed a model whose entries are so large that rounding would leave too little of a start of spread "
                f"{confinement.spread:g}",
            )


def _within(arrays: Mapping[str, NDArray[Any]], confinement: Confinement, like: Arrays) -> bool:
    """Return whether a start keeps enough precision beside these numbers, in the types of the public model."""
    largest = (float(np.abs(array).max(initial=0.0)) for array in arrays.values())
    return all(entry <= confinement.largest(like[name].dtype) for entry, name in zip(largest, arrays, strict=True))


def _sum(moved: Mapping[str, FloatArray], start: Mapping[str, FloatArray]) -> Mapping[str, FloatArray]:
    return {name: array + start[name] for name, array in moved.items()}


def _equal(one: NDArray[Any] | float, other: NDArray[Any] | float) -> bool:
    return np.array_equal(np.asarray(one, np.float64), np.asarray(other, np.float64), equal_nan=True)


def _kinds(model: Arrays) -> list[tuple[str, tuple[int, ...], np.dtype[Any]]]:
    return [(name, array.shape, array.dtype) for name, array in model.items()]


def _normals(secret: bytes, name: str, shape: tuple[int, ...]) -> FloatArray:
    """Return normal random numbers that depend on a secret and an array's name and shape, by Box and Muller.

    They come from AES and not from a numpy generator, whose outputs reveal its state and may change with its version.
    """
    size = math.prod(shape)
    words = np.zeros(2 * size, np.uint64)
    apply_masks(words, [derive(secret, bind("confined start", name.encode(), *shape), SEED_BYTES)])
    uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log1p(-uniform[:size]))
    return np.asarray(radius * np.cos(2 * np.pi * uniform[size:])).reshape(shape)


def _name(descent: bytes) -> str:
    return descent.hex()[:32]
