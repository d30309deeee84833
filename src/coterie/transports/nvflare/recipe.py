"""A recipe of NVFlare for a private job: NVFlare's arguments, and ``private`` with the settings of Coterie.

    recipe = PrivateFedAvgRecipe(model=..., train_script="client.py", min_clients=6, private={"privacy": 2})
    recipe.execute(SimEnv(num_clients=6))

The training script does not change.
"""

from collections.abc import Mapping
from typing import Any

from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe

from coterie.transports.nvflare.controller import PrivateFedAvg
from coterie.transports.nvflare.executor import PrivateExecutor
from coterie.transports.nvflare.jobs import leave_out_coterie


class PrivateRunner:
    """A runner of a script whose executor is wrapped in a :class:`PrivateExecutor`."""

    def __init__(self, runner: Any) -> None:  # noqa: ANN401 - NVFlare has no types
        """Wrap a ``ScriptRunner``."""
        self._runner = runner

    def add_to_fed_job(self, job: Any, ctx: Any, **more: Any) -> Any:  # noqa: ANN401 - NVFlare has no types
        """Add the runner's components to a job."""
        return self._runner.add_to_fed_job(_WrappingJob(job), ctx, **more)


class _WrappingJob:
    """A job that wraps every executor that is added."""

    def __init__(self, job: Any) -> None:  # noqa: ANN401 - NVFlare has no types
        self._job = job

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - NVFlare has no types
        return getattr(self._job, name)

    def add_executor(self, executor: Any, tasks: Any = None, ctx: Any = None) -> Any:  # noqa: ANN401 - NVFlare has no types
        """Add an executor for all tasks, so that it can refuse those that are not Coterie's."""
        leave_out_coterie(self._job)
        return self._job.add_executor(PrivateExecutor(executor), tasks=["*"], ctx=ctx)


class PrivateFedAvgRecipe(FedAvgRecipe):
    """NVFlare's ``FedAvgRecipe`` for PyTorch, under secure aggregation with multi-round privacy."""

    def __init__(
        self,
        *,
        private: Mapping[str, Any] | None = None,
        train_timeout: float = 3600.0,
        interval: float = 0.5,
        **recipe: Any,  # noqa: ANN401 - NVFlare has no types
    ) -> None:
        """Take the arguments of ``FedAvgRecipe`` and of :class:`~.controller.PrivateRounds`.

        ``interval`` is the number of seconds between two requests of a client for its next task. NVFlare's default is
        2; a private round has one task more.
        """
        self._private, self._train_timeout = dict(private or {}), train_timeout
        super().__init__(**recipe)
        self._job.to_server({"server": {"task_request_interval": interval}})

    def _create_controller(self, persistor_id: str, model_params: Any, model_aggregator: Any) -> PrivateFedAvg:  # noqa: ANN401 - NVFlare has no types
        return PrivateFedAvg(
            num_clients=self.min_clients,
            num_rounds=self.num_rounds,
            persistor_id=persistor_id,
            model=model_params,
            save_filename=self.save_filename,
            aggregator=model_aggregator,
            stop_cond=self.stop_cond,
            patience=self.patience,
            exclude_vars=self.exclude_vars,
            aggregation_weights=self.aggregation_weights,
            memory_gc_rounds=self.server_memory_gc_rounds,
            **self._get_controller_kwargs(),
            private=self._private,
            train_timeout=self._train_timeout,
        )

    def _create_client_runner(self, site_config: dict[str, Any]) -> PrivateRunner:
        return PrivateRunner(super()._create_client_runner(site_config))
