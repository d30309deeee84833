"""Trainers, which carry out the tasks of a round: in this process, one by one or together, or in worker processes.

Results depend on the tasks only. Training in this process and in any number of workers gives the same bits, because
every task starts from a copy of the model, has its own random streams, and runs on one thread. (Training clients
*together* rounds differently; see :mod:`coterie.training.executors.vectorised`.)

Importing this module does not import torch. A program may call :func:`warm_up` first: the workers then load torch
while the program itself loads it.
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
    """Carries out the tasks of a round. Close it when done, preferably by using it as a context manager."""

    @abstractmethod
    def start(self, tasks: Sequence["LocalTask"]) -> None:
        """Begin a round with at most one task per client. Unfinished tasks of the previous round are cancelled."""

    @abstractmethod
    def result(self, client: str) -> "LocalResult":
        """Wait for this client's result and return it. May be called from any thread, in any order, and repeatedly.

        Raises :class:`TrainingError` if the training failed or its process died.
        """

    @abstractmethod
    def close(self) -> None:
        """Cancel unfinished tasks, within about one step of training, and end all worker processes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def make_trainer(problem: "Problem", workers: int | None = None, executor: "Executor" = "processes") -> Trainer:
    """Return a trainer with ``workers`` processes: one for each core by default, none with 0.

    ``executor="vectorised"`` trains the clients of a round together in this process instead.

    Model, loss and examples are pickled for the workers, and arrays are shared with them. Lambdas and classes defined
    in an interpreter cannot be pickled: clients are then trained in this process, with a :class:`RuntimeWarning`. As
    always with :mod:`multiprocessing`, a script that uses workers needs ``if __name__ == "__main__":``.
    """
    count = cores() if workers is None else workers
    if count < 0:
        raise ConfigError(f"the number of workers must be at least 0, not {count}")
    if executor == "vectorised" or count == 0:
        return InProcess(problem, together=executor == "vectorised")
    try:
        return Pool(problem, count)
    except NotSendable as error:
        warnings.warn(f"{error}; clients are trained one by one in this process", RuntimeWarning, stacklevel=2)
        return InProcess(problem)


def warm_up() -> None:
    """Start loading torch for future worker processes, without waiting."""
    if _context().get_start_method() == "forkserver":
        forkserver.ensure_running()


class InProcess(Trainer):
    """Trains in this process when a result is requested: one client at a time, or many together.

    Only tasks of local SGD can be trained together; other tasks run one by one.
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
                raise LocalProtocolError(f"{client!r} has no task in this round")
            if client not in self._results:
                for result in _run_tasks(self._problem, self._groups[client], lambda: False):
                    self._results[result.client] = result
            return self._results[client]

    def close(self) -> None:
        """See :class:`Trainer`."""
        self.start(())


class Pool(Trainer):
    """Trains in worker processes, which run until the trainer is closed."""

    def __init__(self, problem: "Problem", workers: int) -> None:
        from coterie.training.local import ArrayData

        context = _context()
        arrays = [problem.data.x, problem.data.y] if isinstance(problem.data, ArrayData) else []
        try:
            pickled = pickle.dumps((problem.model, problem.loss, None if arrays else problem.data))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise NotSendable(f"model, loss or examples cannot be sent to worker processes ({error})") from error
        self._futures: dict[str, Future[LocalResult]] = {}
        # The number of the round. A worker that is busy with an earlier round stops.
        self._current = context.RawValue(ctypes.c_int64, 0)
        self._executor = ProcessPoolExecutor(
            workers, context, _initialise, (pickled, [_Shared(context, array) for array in arrays], self._current)
        )
        try:
            checks = [self._executor.submit(_start_error) for _ in range(workers)]
            failures = [failure for check in checks if (failure := check.result())]
        except BaseException as error:
            self.close()
            if isinstance(error, BrokenExecutor):
                raise TrainingError(
                    "worker processes cannot start (see their output above). In a script, put the code to run under "
                    '`if __name__ == "__main__":`, or use workers=0 to train without processes'
                ) from error
            raise
        if failures:
            self.close()
            raise NotSendable(f"model, loss or examples cannot be loaded in worker processes ({failures[0]})")

    def start(self, tasks: Sequence["LocalTask"]) -> None:
        """See :class:`Trainer`."""
        _check_distinct(tasks)
        self._cancel()
        number = self._current.value
        try:
            self._futures = {task.client: self._executor.submit(_work, task, number) for task in tasks}
        except BrokenExecutor as error:
            raise TrainingError("a worker process died; start a new trainer") from error

    def result(self, client: str) -> "LocalResult":
        """See :class:`Trainer`."""
        if client not in self._futures:
            raise LocalProtocolError(f"{client!r} has no task in this round")
        try:
            return self._futures[client].result()
        except BrokenExecutor as error:
            raise TrainingError(
                f"a worker process died before the training of {client!r} was finished; "
                "if memory ran out, use fewer workers"
            ) from error

    def close(self) -> None:
        """See :class:`Trainer`."""
        self._cancel()
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _cancel(self) -> None:
        self._current.value += 1
        for future in self._futures.values():
            future.cancel()
        self._futures = {}


def _run_tasks(problem: "Problem", tasks: Sequence["LocalTask"], stop: "Stop") -> list["LocalResult"]:
    """Run one task, or several together. Errors become :class:`TrainingError`, which can be pickled."""
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
        raise LocalProtocolError("a client has two tasks in one round; expected at most one")


def _context() -> BaseContext:
    """Return the start method of processes: a fork server with torch loaded if available, or spawn.

    Forking this process is not safe, because it has threads, torch's included.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "coterie.training.executors.vectorised"])
    return context


class _Shared:
    """An array in memory shared by processes. The memory is anonymous, so that it is freed whatever happens."""

    def __init__(self, context: BaseContext, array: npt.NDArray[Any]) -> None:
        self._memory = context.RawArray(ctypes.c_byte, max(1, array.nbytes))
        self._dtype, self._shape = array.dtype, array.shape
        self.array[...] = array

    @property
    def array(self) -> npt.NDArray[Any]:
        return np.ndarray(self._shape, self._dtype, memoryview(self._memory))


# The code below runs in worker processes.

_problem: "Problem | str" = "not initialised"
_current: Any = None  # the number of the round, shared with the parent


def _initialise(pickled: bytes, arrays: Sequence[_Shared], current: Any) -> None:  # noqa: ANN401  (ctypes has no name for it)
    """Load what is the same for all tasks."""
    global _problem, _current
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which ends the round
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    keep_memory()
    from coterie.training.local import ArrayData, Problem

    _current = current
    try:
        model, loss, data = pickle.loads(pickled)  # noqa: S301  (made by the parent a moment ago)
        _problem = Problem(model, ArrayData(*(shared.array for shared in arrays)) if arrays else data, loss)
    except Exception as error:
        _problem = f"{type(error).__name__}: {error}"


def _exit_with_parent() -> None:
    """End this process if the parent is killed. Otherwise it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _start_error() -> str | None:
    return _problem if isinstance(_problem, str) else None


def _work(task: "LocalTask", number: int) -> "LocalResult":
    if isinstance(_problem, str):
        raise TrainingError(_problem)
    return _run_tasks(_problem, [task], lambda: _current.value != number)[0]
