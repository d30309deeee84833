"""A server submits a job without Coterie to a site whose policy lets only Coterie's answers out.

All classes of these jobs are on the list that NVFlare comes with. In such workflows clients send models to each other,
which are not results of tasks.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs coterie[nvflare]")

from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.filter import ContentBlockedException
from nvflare.apis.fl_constant import FilterKey, ReturnCode
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.apis.utils.task_utils import apply_filters
from nvflare.private.fed.client.client_engine_executor_spec import TaskAssignment
from nvflare.private.privacy_manager import Scope
from tests.support.homes import home as home
from tests.support.nvflare_jobs import Engine, deploy, job, refusal, started
from tests.support.nvflare_jobs import site_environment as site_environment

from coterie.transports.nvflare import components

pytestmark = pytest.mark.usefixtures("site_environment")

CCWF = "nvflare.app_common.ccwf"
FILTER = {"path": "coterie.transports.nvflare.filters.PrivateResults"}
RESULTS: dict[str, Any] = {"name": "coterie", "task_result_filters": [FILTER]}
DATA: dict[str, Any] = {"task_data_filters": [{**FILTER, "direction": "out"}]}
JOBS = {"components": [{"id": "coterie", "path": "coterie.transports.nvflare.filters.PrivateJobs"}]}
CONTROLLERS: dict[str, dict[str, Any]] = {
    "CyclicClientController": {"shareable_generator_id": "generator"},
    "SwarmClientController": {
        "shareable_generator_id": "generator",
        "aggregator_id": "aggregator",
    },
    "CrossSiteEvalClientController": {"submit_model_task_name": "train", "validation_task_name": "train"},
}


def policy(folder: Path, scope: dict[str, Any], **more: Any) -> Path:  # noqa: ANN401 - of any type
    path = folder / "privacy.json"
    path.write_text(json.dumps({"default_scope": "coterie", "scopes": [scope], **more}))
    return path


def workflow(folder: Path, controller: str) -> Path:
    """Deploy a job in which clients control a workflow, and return the folder of its app."""
    args = {"task_name_prefix": "wf", "persistor_id": "persistor", **CONTROLLERS[controller]}
    trainer = {"path": f"{CCWF}.comps.np_trainer.NPTrainer", "args": {"delta": 0.375}}
    described = {
        "format_version": 2,
        "executors": [
            {"tasks": ["train"], "executor": trainer},
            {"tasks": ["wf_*"], "executor": {"path": f"{CCWF}.{controller}", "args": args}},
        ],
        "components": [
            {"id": "persistor", "path": f"{CCWF}.comps.np_file_model_persistor.NPFileModelPersistor"},
            {"id": "generator", "path": f"{CCWF}.comps.simple_model_shareable_generator.SimpleModelShareableGenerator"},
            {
                "id": "aggregator",
                "path": "nvflare.app_common.aggregators.intime_accumulate_model_aggregator."
                "InTimeAccumulateWeightedAggregator",
            },
        ],
    }
    return deploy(folder / "site-1", described)


@pytest.mark.parametrize("defended", [False, True])
@pytest.mark.parametrize("controller", CONTROLLERS)
def test_a_workflow_that_clients_control(controller: str, defended: bool, tmp_path: Path) -> None:
    """Where it is not defended, the controller listens for tasks of other clients as soon as the job starts."""
    engine = started(workflow(tmp_path, controller), policy(tmp_path, RESULTS | DATA, **(JOBS if defended else {})))
    route = engine.runner.find_executor("wf_learn")
    route.asked_to_stop = True  # so that its thread ends
    assert (route.engine is None) == defended
    ctx = engine.new_context()
    reply = engine.runner._process_task(TaskAssignment("train", "1", model_at_zero()), ctx)
    assert (reply.get_return_code() == ReturnCode.UNSAFE_JOB) == defended


def model_at_zero() -> Shareable:
    return DXO(DataKind.WEIGHTS, {"numpy_key": np.zeros((3, 3), np.float32)}).to_shareable()


@pytest.mark.parametrize("defended", [False, True])
def test_a_model_that_is_sent_as_the_data_of_a_task(defended: bool, tmp_path: Path) -> None:
    engine = Engine(
        workflow(tmp_path, "CyclicClientController"), policy(tmp_path, RESULTS | (DATA if defended else {}))
    )
    model, ctx = model_at_zero(), engine.new_context()
    result = engine.runner.find_executor("train").execute("train", model, ctx, Signal())
    with pytest.raises(ContentBlockedException, match="policy of this site"):
        apply_filters(Scope.TASK_RESULT_FILTERS_NAME, result, ctx, {}, "train", FilterKey.OUT)
    cyclic = engine.runner.find_executor("wf_learn")
    cyclic.start_run(ctx)
    cyclic.asked_to_stop = True
    cyclic.config = {"cwf.clients": ["site-1", "site-2"], "num_rounds": 1}
    for name, value in {"num_rounds": 1, "current_round": 0, "cwf.client_order": ["site-1", "site-2"]}.items():
        model.set_header(name, value)
    cyclic.do_learn_task("train", model, ctx, Signal())
    left = [from_shareable(request).data["numpy_key"].max() for request in engine.sent]
    assert left == ([] if defended else [0.375])


def test_a_private_job_runs_under_the_policy(tmp_path: Path) -> None:
    engine = started(deploy(tmp_path / "site-1", job("x")), policy(tmp_path, RESULTS | DATA, **JOBS))
    assert refusal(engine) is None
    assert not engine.new_context().is_job_unsafe()


@pytest.mark.parametrize("judged", [False, True])
def test_a_job_that_cannot_be_judged_does_not_run(
    judged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVFlare goes on with a job if a component raises an exception in an event."""

    def fail(_part: object) -> bool:
        raise AttributeError

    if not judged:
        monkeypatch.setattr(components, "_is_accepted", fail)
    engine = started(deploy(tmp_path / "site-1", job("x")), policy(tmp_path, RESULTS | DATA, **JOBS))
    assert engine.new_context().is_job_unsafe() != judged
    assert refusal(engine) == (None if judged else "settings")
