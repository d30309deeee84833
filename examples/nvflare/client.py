"""The client: trains on the digits of its own site. Nothing in it is about privacy."""

import argparse

import nvflare.client as flare
import torch
from model import Digits, load_part
from torch import nn


def main() -> None:
    """Train on every model that arrives."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sites", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rate", type=float, default=0.3)
    arguments = parser.parse_args()
    flare.init()
    part = int(flare.get_site_name().rpartition("-")[2]) - 1
    images, labels = load_part(part, arguments.sites)
    model = Digits()
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.rate)
    while flare.is_running():
        received = flare.receive()
        model.load_state_dict(received.params)
        steps = loss = 0
        for _ in range(arguments.epochs):
            loss = 0.0
            for batch in torch.randperm(len(labels)).split(32):
                optimizer.zero_grad()
                error = nn.functional.cross_entropy(model(images[batch]), labels[batch])
                error.backward()
                optimizer.step()
                loss += error.item() * len(batch) / len(labels)
                steps += 1
        meta = {"NUM_STEPS_CURRENT_ROUND": steps}
        flare.send(flare.FLModel(params=model.state_dict(), metrics={"train_loss": loss}, meta=meta))


if __name__ == "__main__":
    main()
