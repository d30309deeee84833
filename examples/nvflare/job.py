"""The job: federated averaging over the sites of a simulator, plain or private."""

import argparse
from pathlib import Path

import torch
from model import Digits, accuracy, load_test
from nvflare.recipe import SimEnv


def main() -> None:
    """Run all rounds, and test the last model on digits that no site has."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plain", action="store_true", help="without Coterie, to compare")
    parser.add_argument("--sites", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workspace", default="workspace", help="where NVFlare's simulator works")
    arguments = parser.parse_args()
    settings = {
        "name": "digits",
        "model": Digits(),
        "min_clients": arguments.sites,
        "num_rounds": arguments.rounds,
        "train_script": "client.py",
        "train_args": f"--sites {arguments.sites}",
    }
    if arguments.plain:
        from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe

        recipe = FedAvgRecipe(**settings)
    else:
        from coterie.transports.nvflare import PrivateFedAvgRecipe

        private = {"privacy": 2, "most_examples": 100, "train_metrics": {"train_loss": [0, 5]}}
        recipe = PrivateFedAvgRecipe(**settings, private=private)
    recipe.execute(SimEnv(num_clients=arguments.sites, workspace_root=arguments.workspace))
    model = Digits()
    (saved,) = Path(arguments.workspace, "digits").rglob("FL_global_model.pt")
    model.load_state_dict(torch.load(saved)["model"])
    print(f"accuracy on digits that no site has: {accuracy(model, *load_test()):.3f}")


if __name__ == "__main__":
    main()
