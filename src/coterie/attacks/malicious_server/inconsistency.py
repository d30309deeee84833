"""Different models for different clients, so that a secure sum contains only the target's update.

Pasquini, Francati and Ateniese (2022) show that secure aggregation does not protect against a server that sends
different models. If all ReLU units of a model are dead, the gradients before and right after them are zero. If all
clients but the target receive such a model, the sum of the updates *is* the target's update. No rule about masks is
broken: the sum is revealed as usual. Only the biases of the last layer stay mixed, because they still learn.

The defence: the terms of a session name the model (``content``), and a member that received another model refuses.
"""

import numpy as np

from coterie.arithmetic.quantize import Quantizer
from coterie.arithmetic.ring import RingVector
from coterie.attacks.federation import Federation, shaped
from coterie.attacks.inversion.descent import exact_input
from coterie.attacks.malicious_server.invitations import play
from coterie.attacks.malicious_server.scenario import VICTIM, Attempt, Lie, Picture, Scenario, as_picture
from coterie.attacks.malicious_server.server import simulated_identity
from coterie.rounds import one_off
from coterie.runs.engine.secrets import digest_of
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalSGD
from coterie.training.streams import stream

MODEL = "mlp"
WORK = LocalSGD(learning_rate=0.5, batch_size=1)
PRECISION = 16


def deaden(state: ModelArrays) -> ModelArrays:
    """Return a network whose hidden units are below zero for every input of ordinary size."""
    weights, biases, *rest = state
    reach = 1 + 100 * np.abs(weights).sum(axis=1)
    return [weights, np.asarray(-reach, biases.dtype), *rest]


def starve(scenario: Scenario, defended: bool) -> Attempt:
    """Send the target the model that the terms name, and a dead one to all others."""
    federation = Federation.deal(
        scenario.data, MODEL, scenario.clients, scenario.seed, examples=1, data_dir=scenario.data_dir
    )
    model = federation.start
    terms = scenario.terms("models", scenario.clients)
    given = {name: model if number == VICTIM else deaden(model) for number, name in enumerate(terms.clients)}
    quantizer = Quantizer(1.0, PRECISION, scenario.clients)

    def update(name: str) -> RingVector:
        (trained,) = federation.updates(given[name], 1, WORK, [terms.index[name]])
        return quantizer.encode(trained, stream(scenario.seed, "rounding", name)).vector

    planted = update(terms.clients[VICTIM])
    terms = scenario.terms(
        "models",
        scenario.clients,
        bits=quantizer.ring.bits,
        length=planted.size,
        content=digest_of(given[terms.clients[VICTIM]]),
    )
    identities = {name: simulated_identity(name) for name in terms.clients} if scenario.active else None
    members = one_off(terms, update, identities=identities)
    if defended:
        for name, member in members.items():
            member.content = digest_of(given[name])
    total, refusals = play(terms, members)
    mine = slice(
        1, planted.size - model[-1].size
    )  # without the weight in front, and without the biases that are trained anyway
    shown = federation.dataset.train_x[federation.parts[VICTIM][0]]
    recovered, seen = None, None
    if total is not None:
        recovered = total[mine]
        seen = as_picture(see_example(quantizer, total, model).reshape(shown.shape))
    pictures = as_picture(shown), seen
    return Attempt(quantizer.ring, planted[mine], recovered, refusals=refusals, pictures=pictures)


def see_example(quantizer: Quantizer, update: RingVector, model: ModelArrays) -> Picture:
    """Return the example that an update of one step was computed from."""
    steps = np.asarray(quantizer.ring.lift(update[1:]) * quantizer.step, np.float64)
    weights, biases, *_ = shaped(steps, [np.asarray(array, np.float64) for array in model])
    return exact_input(weights, biases)


LIES = (
    Lie(
        "model-inconsistency",
        "Different models",
        "sends a model of dead units to all clients but the victim, so that the sum of all updates is the victim's",
        "the terms name the model, and a member that received another model does not take part",
        starve,
    ),
)
