"""A private job without PyTorch, in NVFlare's simulator: ``job.py SITES ROUNDS SECONDS WORKSPACE``."""

import sys

from nvflare.app_common.np.np_model_persistor import NPModelPersistor
from nvflare.fuel.utils.constants import FrameworkType
from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import ScriptRunner

from coterie.transports.nvflare import PrivateFedAvg, PrivateRunner


def main() -> None:
    sites, rounds, seconds = map(int, sys.argv[1:4])
    job = FedJob(name="moves", min_clients=2)
    persistor = job.to_server(NPModelPersistor(model=[0.0, 0.0]), id="persistor")
    controller = PrivateFedAvg(
        num_clients=sites,
        num_rounds=rounds,
        persistor_id=persistor,
        train_timeout=seconds,
        private={"colluders": 0, "most_examples": 1, "train_metrics": {"train_loss": [0, 2]}},
    )
    job.to_server(controller)
    job.to_server({"server": {"task_request_interval": 0.5}})
    job.to_clients(PrivateRunner(ScriptRunner(script="client.py", framework=FrameworkType.NUMPY)))
    job.simulator_run(sys.argv[4], n_clients=sites, threads=sites)


if __name__ == "__main__":
    main()
