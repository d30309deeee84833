"""Trainers of the clients of a round: in this process, one by one or together, or in worker processes.

A :class:`Trainer` is given all tasks of a round and asked for their results. These depend on the tasks alone: training
in this process and in any number of workers gives the same bits, because every task starts from a copy of the model,
has random streams of its own, and runs on one thread. (Training clients *together* rounds differently; see
:mod:`coterie.training.executors.vectorised`.)

Importing this module does not import torch. A program in a hurry calls :func:`warm_up` first: torch is then loaded for
the workers while the program loads it for itself.
"""

import ctypes
import multiprocessing
import os
import pickle
import signal
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from multiprocessing import connection, forkserver
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from coterie.errors import Cancelled, ConfigError, LocalProtocolError, NotSendable, TrainingError
from coterie.host import cores, keep_memory

if TYPE_CHECKING:
    from coterie.training.executors.vectorised import Executor
    from coterie.training.local import LocalResult, LocalTask, Problem, Stop


class Trainer(ABC):
    """Carries out the tasks of a round; to be closed in the end, best as a context manager."""

    @abstractmethod
    def start(self, tasks: Sequence["LocalTask"]) -> None:
        """Begin a round with at most one task for each client; whatever is left of the round before is given up."""

    @abstractmethod
    def result(self, client: str) -> "LocalResult":
        """Wait for this client's result. Any thread may ask, in any order, and more than once.

        :class:`TrainingError` where the training failed or its process died.
        """

    @abstractmethod
    def close(self) -> None:
        """Give up what is unfinished, within about one step of training; then no process is left."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def make_trainer(problem: "Problem", workers: int | None = None, executor: "Executor" = "processes") -> Trainer:
    """Return a trainer with ``workers`` processes: one for each core by default, none with 0.

    ``executor="vectorised"`` trains the clients of a round together in this process instead.

    Model, loss and examples are pickled for the workers (arrays are shared with them). Where that is impossible, as
    for lambdas and for classes typed into an interpreter, clients are trained in this process, and a
    :class:`RuntimeWarning` says so. A script that uses workers needs ``if __name__ == "__main__":`` around what is to
    be run once, as ever with :mod:`multiprocessing`.
    """
    count = cores() if workers is None else workers
    if count < 0:
        raise ConfigError(f"there cannot be {count} workers")
    if executor == "vectorised" or count == 0:
        return InProcess(problem, together=executor == "vectorised")
    try:
        return Pool(problem, count)
    except NotSendable as error:
        warnings.warn(f"{error}; clients are trained one by one in this process", RuntimeWarning, stacklevel=2)
        return InProcess(problem)


def warm_up() -> None:
    """Start loading torch for worker processes to come; returns at once."""
    if _context().get_start_method() == "forkserver":
        forkserver.ensure_running()


class InProcess(Trainer):
    """Trains in this process, when a result is asked for: one client at a time, or many together.

    Together means local SGD: other work is done one by one all the same.
    """

    def __init__(self, problem: "Problem", *, together: bool = False) -> None:
        self._problem = problem
        self._together = together
        self._lock = threading.Lock()
        self._groups: dict[str, Sequence[LocalTask]] = {}
        self._results: dict[str, LocalResult] = {}

    def start(self, tasks: Sequence["LocalTask"]) -> None:
        """See :class:`Trainer`."""
        from coterie.training.executors.vectorised import LANES
        from coterie.training.local import LocalSGD

        _check_distinct(tasks)
        size = LANES if self._together and all(isinstance(task.work, LocalSGD) for task in tasks) else 1
        groups = [tasks[first : first + size] for first in range(0, len(tasks), size)]
        with self._lock:
            self._groups = {task.client: group for group in groups for task in group}
            self._results = {}

    def result(self, client: str) -> "LocalResult":
        """See :class:`Trainer`."""
        with self._lock:
            if client not in self._groups:
                raise LocalProtocolError(f"{client!r} was given nothing to do")
            if client not in self._results:
                for result in _carry_out(self._problem, self._groups[client], lambda: False):
                    self._results[result.client] = result
            return self._results[client]

    def close(self) -> None:
        """See :class:`Trainer`."""
        self.start(())


class Pool(Trainer):
    """Trains in worker processes that start at once and live until the trainer is closed."""

    def __init__(self, problem: "Problem", workers: int) -> None:
        from coterie.training.local import ArrayData

        context = _context()
        arrays = [problem.data.x, problem.data.y] if isinstance(problem.data, ArrayData) else []
        try:
            pickled = pickle.dumps((problem.model, problem.loss, None if arrays else problem.data))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise NotSendable(f"model, loss or examples cannot be sent to worker processes ({error})") from error
        self._futures: dict[str, Future[LocalResult]] = {}
        # Counts the rounds; a worker still busy with an earlier one gives it up.
        self._current = context.RawValue(ctypes.c_int64, 0)
        self._executor = ProcessPoolExecutor(
            workers, context, _settle, (pickled, [_Shared(context, array) for array in arrays], self._current)
        )
        try:
            greetings = [self._executor.submit(_greet) for _ in range(workers)]
            complaints = [complaint for greeting in greetings if (complaint := greeting.result())]
        except BaseException as error:
            self.close()
            if isinstance(error, BrokenExecutor):
                raise TrainingError(
                    "worker processes cannot start (what they printed says more). In a script, whatever is to be run "
                    'once must stand under `if __name__ == "__main__":`; or use workers=0, without processes'
                ) from error
            raise
        if complaints:
            self.close()
            raise NotSendable(f"model, loss or examples do not arrive in worker processes ({complaints[0]})")

    def start(self, tasks: Sequence["LocalTask"]) -> None:
        """See :class:`Trainer`."""
        _check_distinct(tasks)
        self._give_up()
        number = self._current.value
        try:
            self._futures = {task.client: self._executor.submit(_work, task, number) for task in tasks}
        except BrokenExecutor as error:
            raise TrainingError("a worker process died; nothing can be trained any more") from error

    def result(self, client: str) -> "LocalResult":
        """See :class:`Trainer`."""
        if client not in self._futures:
            raise LocalProtocolError(f"{client!r} was given nothing to do")
        try:
            return self._futures[client].result()
        except BrokenExecutor as error:
            raise TrainingError(
                f"a worker process died while {client!r} was waiting to be trained or being trained; "
                "if memory ran out, use fewer workers"
            ) from error

    def close(self) -> None:
        """See :class:`Trainer`."""
        self._give_up()
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _give_up(self) -> None:
        self._current.value += 1
        for future in self._futures.values():
            future.cancel()
        self._futures = {}


def _carry_out(problem: "Problem", tasks: Sequence["LocalTask"], stop: "Stop") -> list["LocalResult"]:
    """Do one task, or several together. Whatever goes wrong has one type, which survives the way between processes."""
    from coterie.training.executors.vectorised import train_together
    from coterie.training.local import one_thread

    try:
        with one_thread():
            if len(tasks) > 1:
                return train_together(problem, tasks, stop)
            return [tasks[0].work(problem, tasks[0], stop)]
    except Cancelled:
        raise
    except Exception as error:
        who = tasks[0].client if len(tasks) == 1 else f"{len(tasks)} clients"
        reason = f"{type(error).__name__}: {error}"
        raise TrainingError(f"training {who} in round {tasks[0].round} failed: {reason}") from error


def _check_distinct(tasks: Sequence["LocalTask"]) -> None:
    if len({task.client for task in tasks}) < len(tasks):
        raise LocalProtocolError("a client was given two tasks in a round")


def _context() -> BaseContext:
    """Choose how to start processes: from a server that has torch loaded, where there can be one.

    Forking this process itself is not safe: it has threads, torch's among them.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "coterie.training.executors.vectorised"])
    return context


class _Shared:
    """An array in memory that processes share. It has no name, so that nothing is left behind, come what may."""

    def __init__(self, context: BaseContext, array: npt.NDArray[Any]) -> None:
        self._memory = context.RawArray(ctypes.c_byte, max(1, array.nbytes))
        self._dtype, self._shape = array.dtype, array.shape
        self.array[...] = array

    @property
    def array(self) -> npt.NDArray[Any]:
        return np.ndarray(self._shape, self._dtype, memoryview(self._memory))


# What follows runs in a worker process.

_problem: "Problem | str" = "not settled"
_current: Any = None  # the number of the round, shared with the parent


def _settle(pickled: bytes, arrays: Sequence[_Shared], current: Any) -> None:  # noqa: ANN401  (ctypes has no name for it)
    """Take in what stays the same for all tasks."""
    global _problem, _current
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which ends the round in order
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    keep_memory()
    from coterie.training.local import ArrayData, Problem

    _current = current
    try:
        model, loss, data = pickle.loads(pickled)  # noqa: S301  (made by the parent a moment ago)
        _problem = Problem(model, ArrayData(*(shared.array for shared in arrays)) if arrays else data, loss)
    except Exception as error:
        _problem = f"{type(error).__name__}: {error}"


def _leave_with_parent() -> None:
    """End this process if the parent is killed; it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _greet() -> str | None:
    return _problem if isinstance(_problem, str) else None


def _work(task: "LocalTask", number: int) -> "LocalResult":
    if isinstance(_problem, str):
        raise TrainingError(_problem)
    return _carry_out(_problem, [task], lambda: _current.value != number)[0]
