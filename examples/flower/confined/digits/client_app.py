"""The client: trains on the digits of its own node."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from coterie.transports.flower import private_mod

app = ClientApp(mods=[private_mod])


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model that was received on this node's digits."""
    # Flower starts a process for every message, so what takes seconds to import is imported where it is used.
    from digits import task

    model = task.make_model()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    images, labels = task.load_part(context.node_config["partition-id"], context.node_config["num-partitions"])
    loss = task.train(model, images, labels, context.run_config["local-epochs"], msg.content["config"]["lr"])
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(labels)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=msg)
