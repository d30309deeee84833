"""NVFlare's and Coterie's names of the same things."""

import logging

from coterie.deployment.engine import EVALUATE, TRAIN

FUNCTIONS = {"train": TRAIN, "validate": EVALUATE}
"""Coterie's function of each task of an app."""
TASKS = {function: task for task, function in FUNCTIONS.items()}
WEIGHT = "NUM_STEPS_CURRENT_ROUND"
"""The entry of ``FLModel.meta`` that results are weighted by."""
LOG = logging.getLogger("custom.coterie")
"""NVFlare shows the logs of apps on its console, and calls them ``custom``."""
PRIVATE_EXECUTOR = "coterie.transports.nvflare.executor.PrivateExecutor"
"""The path of Coterie's executor in the configuration of a job."""
