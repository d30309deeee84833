import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.learning import (
    Crash,
    Fail,
    Undeliverable,
    WaitUntilStopped,
    blobs,
    dealt,
    read_on_demand,
    same,
    small_problem,
    tasks_for,
)
from torch import nn
from torch.utils.data import TensorDataset

from coterie.errors import Cancelled, ConfigError, LocalProtocolError, TrainingError
from coterie.training.executors import processes as workers
from coterie.training.executors.processes import InProcess, Pool, Trainer, make_trainer, warm_up
from coterie.training.local import ArrayData, LocalSGD, Problem, cross_entropy
from coterie.training.models import build
from coterie.training.schedules import Curriculum
from coterie.training.strategies import FedAvg, plain_round


def pictures() -> Problem:
    """Convolutions and dropout on 8 x 8 pictures."""
    rng = np.random.default_rng(0)
    data = ArrayData(rng.standard_normal((60, 1, 8, 8)).astype(np.float32), rng.integers(0, 3, 60))
    model = build("mnist-cnn", (1, 8, 8), 3, seed=1)
    return Problem(nn.Sequential(nn.Dropout(0.2), model), data)


@pytest.fixture(scope="module")
def pool() -> Iterator[Trainer]:
    with make_trainer(pictures(), 2) as trainer:
        assert isinstance(trainer, Pool)
        yield trainer


def test_any_number_of_workers_gives_the_same_bits(pool: Trainer) -> None:
    problem = pictures()
    learnt = []
    with make_trainer(problem, 0) as none, make_trainer(problem, 1) as one:
        for trainer in (none, one, pool):
            strategy = FedAvg(problem.model, Curriculum(dealt([20, 15, 25]), LocalSGD(0.1, 2, 8), 3), momentum=0.5)
            for number in range(1, 4):
                plain_round(strategy, trainer, number, ["c2", "c0", "c1"])
            learnt.append(list(strategy.state().values()))
    assert same(learnt[0], learnt[1])
    assert same(learnt[0], learnt[2])


def test_results_may_be_asked_for_in_any_order_by_any_thread(pool: Trainer) -> None:
    problem = pictures()
    tasks = tasks_for(problem, [10] * 6)
    in_process = InProcess(problem)
    expected = [task.work(problem, task, lambda: False) for task in tasks]
    for trainer in (pool, in_process):
        trainer.start(tasks)
        with ThreadPoolExecutor(3) as threads:
            results = list(threads.map(trainer.result, [task.client for task in reversed(tasks)] * 2))
        for result in results:
            assert same(result.update, expected[int(result.client[1:])].update)


@pytest.mark.parametrize("kind", ["pool", "in process"])
def test_clients_without_a_task_or_with_two_are_refused(kind: str, pool: Trainer) -> None:
    problem = pictures()
    trainer = pool if kind == "pool" else InProcess(problem)
    tasks = tasks_for(problem, [10, 10])
    trainer.start(tasks[:1])
    trainer.result("c0")
    with pytest.raises(LocalProtocolError, match="'c1' has no task in this round"):
        trainer.result("c1")
    with pytest.raises(LocalProtocolError, match="two tasks"):
        trainer.start([tasks[0], tasks[0]])
    trainer.start(tasks[1:])
    with pytest.raises(LocalProtocolError, match="'c0'"):
        trainer.result("c0")


def test_a_new_round_ends_the_old_one(pool: Trainer) -> None:
    problem = pictures()
    pool.start(tasks_for(problem, [10] * 5, WaitUntilStopped()))
    time.sleep(0.1)  # so that some of them have begun
    (task,) = tasks_for(problem, [10])
    pool.start([task])
    assert same(pool.result("c0").update, task.work(problem, task, lambda: False).update)


@pytest.mark.parametrize("kind", ["pool", "in process"])
def test_a_client_that_cannot_be_trained_does_not_stop_the_others(kind: str, pool: Trainer) -> None:
    problem = pictures()
    trainer = pool if kind == "pool" else InProcess(problem)
    good, bad = tasks_for(problem, [10, 10])
    trainer.start([replace(bad, work=Fail(), round=4), good])
    with pytest.raises(TrainingError, match="training c1 in round 4 failed: ValueError: this client is stubborn"):
        trainer.result("c1")
    assert trainer.result("c0").samples == 10


def test_a_group_that_cannot_be_trained_together_is_an_error() -> None:
    problem = pictures()
    with make_trainer(problem, executor="vectorised") as trainer:
        trainer.start(tasks_for(problem, [10, 10]))
        with pytest.raises(TrainingError, match="training 2 clients in round 1 failed: ConfigError"):
            trainer.result("c0")


def test_a_worker_that_dies_is_an_error_and_not_a_wait_for_ever() -> None:
    problem = small_problem()
    with make_trainer(problem, 1) as trainer:
        trainer.start(tasks_for(problem, [10], Crash()))
        with pytest.raises(TrainingError, match="died before the training of 'c0' was finished"):
            trainer.result("c0")
        with pytest.raises(TrainingError, match="start a new trainer"):
            trainer.start(tasks_for(problem, [10]))


def test_closing_cancels_running_tasks_and_leaves_no_process() -> None:
    problem = small_problem()
    before = set(multiprocessing.active_children())
    with make_trainer(problem, 2) as trainer:
        # A second worker is started on demand: one that is idle already takes the next task.
        assert 1 <= len(set(multiprocessing.active_children()) - before) <= 2
        trainer.start(tasks_for(problem, [10] * 6, WaitUntilStopped()))
        time.sleep(0.1)
    assert set(multiprocessing.active_children()) <= before
    trainer.close()


def test_torch_data_sets_and_read_only_arrays_reach_the_workers() -> None:
    arrays = blobs(20)
    pairs = TensorDataset(torch.from_numpy(arrays.x), torch.from_numpy(arrays.y))
    problem = replace(small_problem(), data=read_on_demand(pairs, 20))
    (task,) = tasks_for(problem, [20])
    with make_trainer(problem, 1) as trainer:
        trainer.start([task])
        assert same(trainer.result("c0").update, task.work(problem, task, lambda: False).update)


def test_models_that_cannot_be_sent_are_trained_here_with_a_warning() -> None:
    local = replace(small_problem(), loss=lambda outputs, targets: cross_entropy(outputs, targets))
    for problem, reason in ((local, "lambda"), (replace(local, loss=Undeliverable()), "no number")):
        with pytest.warns(RuntimeWarning, match=f"{reason}.*one by one in this process") as caught:
            trainer = make_trainer(problem, 1)
        assert caught[0].filename == __file__
        assert isinstance(trainer, InProcess)
        trainer.start(tasks_for(problem, [10]))
        assert trainer.result("c0").samples == 10


def test_workers_that_cannot_start_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_initialise", os.abort)
    with pytest.raises(TrainingError, match='if __name__ == "__main__":'):
        make_trainer(small_problem(), 1)


def test_an_interrupted_start_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    submit = ProcessPoolExecutor.submit
    before = set(multiprocessing.active_children())

    def interrupted(self: ProcessPoolExecutor, *given: Any) -> None:  # noqa: ANN401
        submit(self, *given)
        raise KeyboardInterrupt

    monkeypatch.setattr(ProcessPoolExecutor, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make_trainer(small_problem(), 1)
    assert set(multiprocessing.active_children()) <= before


def test_cancelled_work_is_not_a_failure() -> None:
    problem = small_problem()
    with pytest.raises(Cancelled):
        workers._run_tasks(problem, tasks_for(problem, [10]), lambda: True)


def test_without_workers_clients_are_trained_in_this_process() -> None:
    problem = small_problem()
    with pytest.raises(ConfigError, match="at least 0, not -1"):
        make_trainer(problem, -1)
    assert isinstance(make_trainer(problem, 0), InProcess)
    assert isinstance(make_trainer(problem, 2, "vectorised"), InProcess)


def test_processes_are_spawned_where_there_is_no_fork_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert workers._context().get_start_method() == "spawn"
    warm_up()
    monkeypatch.undo()
    warm_up()


def test_the_functions_of_a_worker_train_and_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions of the worker process, called in this one."""
    problem = small_problem()
    assert isinstance(problem.data, ArrayData)
    monkeypatch.setattr(workers, "_problem", "not settled")
    monkeypatch.setattr(workers, "_current", None)
    ignored = []
    monkeypatch.setattr(signal, "signal", lambda *given: ignored.append(given))
    (task,) = tasks_for(problem, [10])
    with pytest.raises(TrainingError, match="not settled"):
        workers._work(task, 1)
    context = multiprocessing.get_context("spawn")
    shared = [workers._Shared(context, array) for array in (problem.data.x, problem.data.y)]
    current = context.RawValue("q", 1)
    workers._initialise(pickle.dumps((problem.model, problem.loss, None)), shared, current)
    assert ignored == [(signal.SIGINT, signal.SIG_IGN)]
    assert workers._start_error() is None
    assert same(workers._work(task, 1).update, task.work(problem, task, lambda: False).update)
    workers._initialise(b"nonsense", shared, current)
    assert "UnpicklingError" in (workers._start_error() or "")


def test_a_worker_exits_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = multiprocessing.Pipe()
    left = threading.Event()
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: SimpleNamespace(sentinel=here))
    monkeypatch.setattr(os, "_exit", lambda code: left.set())
    waiting = threading.Thread(target=workers._exit_with_parent)
    waiting.start()
    assert not left.is_set()
    there.close()
    waiting.join(10)
    assert left.is_set()


SCRIPT = """
    import os, sys
    import numpy as np
    from torch import nn
    from coterie.training import flatten
    from coterie.training.local import ArrayData, LocalSGD, LocalTask, Problem
    from coterie.training.executors.processes import make_trainer

    def main():
        model = nn.Linear(4, 2)
        problem = Problem(model, ArrayData(np.zeros((1000, 4), np.float32), np.zeros(1000, np.int64)))
        work = LocalSGD(0.1, epochs=100_000)
        tasks = [LocalTask(f"c{i}", 0, 0, flatten.read(model), np.arange(1000), work) for i in range(4)]
        with make_trainer(problem, 2) as trainer:
            import multiprocessing
            trainer.start(tasks)
            print(*(child.pid for child in multiprocessing.active_children()), flush=True)
            trainer.result("c0")

"""


def run(folder: Path, ending: str) -> subprocess.Popen[str]:
    script = folder / "train.py"
    script.write_text(textwrap.dedent(SCRIPT) + ending)
    return subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children_of(parent: "subprocess.Popen[str]") -> list[int]:
    """The two workers of a program, which prints their process ids first."""
    assert parent.stdout is not None
    children = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(children) == 2
    return children


def wait_until_gone(pids: list[int], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)):
        assert time.monotonic() < deadline, "processes are still there"
        time.sleep(0.05)


GUARDED = 'if __name__ == "__main__":\n    main()\n'


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks processes up in /proc")
def test_no_worker_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    with run(tmp_path, GUARDED) as parent:
        children = children_of(parent)
        assert all(map(alive, children))
        os.kill(parent.pid, signal.SIGKILL)
        wait_until_gone(children)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks processes up in /proc")
def test_ctrl_c_ends_a_program_in_order(tmp_path: Path) -> None:
    with run(tmp_path, GUARDED) as parent:
        children = children_of(parent)
        os.killpg(parent.pid, signal.SIGINT)  # as a terminal does: to the parent and all workers
        _, errors = parent.communicate(timeout=60)
        wait_until_gone(children)
        assert parent.returncode == -signal.SIGINT
        assert errors.count("Traceback") == errors.count("KeyboardInterrupt") == 1


@pytest.mark.slow
def test_a_script_without_guard_gets_advice(tmp_path: Path) -> None:
    with run(tmp_path, "main()\n") as parent:
        _, errors = parent.communicate(timeout=120)
        assert parent.returncode == 1
        assert "TrainingError: worker processes cannot start" in errors
