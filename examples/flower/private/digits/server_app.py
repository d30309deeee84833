"""The server: asks the nodes to train, averages their models, and tests the mean on digits that no node has."""

from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from coterie.transports.flower import PrivateStrategy
from digits import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds."""
    config = context.run_config
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=config["min-available-nodes"])
    strategy = PrivateStrategy(strategy, privacy=2, train_metrics={"train_loss": (0, 5)})
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(task.make_model().state_dict()),
        num_rounds=config["num-server-rounds"],
        train_config=ConfigRecord({"lr": config["learning-rate"]}),
        evaluate_fn=evaluate,
    )


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Test a model on digits that no node has."""
    model = task.make_model()
    model.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": task.accuracy(model, *task.load_test())})
