"""NVFlare as a carrier of rounds: another recipe makes a job private, and its training script does not change.

    recipe = PrivateFedAvgRecipe(..., private={"privacy": 2})    # in place of FedAvgRecipe

The server gets one weighted mean a round, over whole circles of clients; to its controller it looks like the result of
a single client. :mod:`coterie.deployment` plays the rounds. This package adapts NVFlare: :mod:`~.controller` and
:mod:`~.carrier` send messages as tasks, :mod:`~.executor` and :mod:`~.request` receive them on a site,
:mod:`~.components`, :mod:`~.job_config` and :mod:`~.files` judge a job on a site before it starts. An operator hardens
a site by :mod:`~.filters`, :mod:`~.commands` and :mod:`~.deployer`. :mod:`~.messages` defines the messages,
:mod:`~.recipe` describes the job. Start with :mod:`~.controller` for the server and
:mod:`~.executor` for a site. NVFlare is imported when one of the names below is first used.
"""

from typing import TYPE_CHECKING

from coterie.lazy_names import lazy_getattr

__all__ = ["PrivateExecutor", "PrivateFedAvg", "PrivateFedAvgRecipe", "PrivateRounds", "PrivateRunner"]

if TYPE_CHECKING:
    from coterie.transports.nvflare.controller import PrivateFedAvg, PrivateRounds
    from coterie.transports.nvflare.executor import PrivateExecutor
    from coterie.transports.nvflare.recipe import PrivateFedAvgRecipe, PrivateRunner
else:
    __getattr__ = lazy_getattr(
        __name__,
        {
            "PrivateExecutor": f"{__name__}.executor",
            "PrivateFedAvg": f"{__name__}.controller",
            "PrivateRounds": f"{__name__}.controller",
            "PrivateFedAvgRecipe": f"{__name__}.recipe",
            "PrivateRunner": f"{__name__}.recipe",
        },
    )
