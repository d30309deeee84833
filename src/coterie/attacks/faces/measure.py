"""Model inversion: reconstruct a person's face from a model that has a class for that person (Fredrikson et al. 2015).

Every client is one person, with pictures of that person only, and all train one softmax regression to tell people apart
(Choi et al. 2020, Figures 2 and A.4). The attacker starts from a grey picture and follows the gradient of p(person |
picture). The initial model is subtracted first: the server chose it, and it is public.

A masked vector is uniformly random by construction, so an attack on it must fail; that shows only that masking is on.
The global model is public under secure aggregation too, so it is inverted as well.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from coterie.attacks import threats
from coterie.attacks.attack import Adversary, OnProgress
from coterie.attacks.faces.settings import FacesSettings
from coterie.attacks.federation import Federation, Vector, shaped
from coterie.attacks.reconstructions import Trial
from coterie.attacks.session import play_session
from coterie.attacks.similarity import Pictures, PixelScale
from coterie.graphs.topology import Complete, ErdosRenyi
from coterie.training.data.partitions import by_person
from coterie.training.flatten import ModelArrays, difference, moved
from coterie.training.local import LocalSGD
from coterie.training.streams import stream

PLAIN, SA, CCESA = "plain averaging: a client's model", "SA: what the client sent", "CCESA: what the client sent"
GLOBAL, GUESS = "all three: everybody's model", "guess: the mean picture"
_STEPS, _STEP = 25, 0.02  # the steps together are just enough to turn a pixel from grey to black or white


@dataclass(frozen=True)
class Faces(FacesSettings):
    """Model inversion of what each client sends, and of the global model."""

    title: ClassVar[str] = "Model inversion: the face behind a class"
    threat: ClassVar[Adversary] = threats.FACES

    def measure(self, watch: OnProgress) -> list[Trial]:
        """Train, observe and invert, with another model in every trial."""
        trials = []
        for number in range(self.trials):
            watch(f"training model {number + 1} of {self.trials}, one person a client", number / self.trials)
            trials.append(self.trial(number))
        return trials

    def trial(self, number: int) -> Trial:
        """Train one model, observe its last round, and invert for every person."""
        seed = int(stream(self.seed, "faces", number).integers(2**62))
        federation = Federation.deal(self.data, "softmax-regression", 1, seed, data_dir=self.data_dir)
        people = np.asarray(federation.dataset.train_y, np.int64)
        federation = replace(federation, parts=by_person(people))
        strategy = federation.fedavg(LocalSGD(self.learning_rate, self.epochs))
        *_, last = federation.play(strategy, range(1, self.rounds + 1), together=False)
        state, updates = last.before, list(last.updates)
        complete = play_session(updates, seed, topology=Complete())
        sparse = play_session(updates, seed, topology=ErdosRenyi(self.connection))
        scale = PixelScale.of(federation.dataset.train_x)
        public = scale.pictures(federation.dataset.test_x)
        after = moved(state, shaped(complete.mean, state))
        everybody = scale.pictures(federation.dataset.train_x)
        firsts = np.array([part[0] for part in federation.parts])

        def learnt(model: ModelArrays) -> ModelArrays:
            return difference(model, federation.start)  # subtract the random numbers of the initial model

        def seen(heard: Vector | None, person: int) -> Pictures:
            if heard is None:  # it left before it sent anything
                return np.asarray(public.mean(0))
            return draw(learnt(moved(state, shaped(heard, state))), person, public)

        drawn = {
            PLAIN: np.stack([seen(update, person) for person, update in enumerate(updates)]),
            SA: np.stack([seen(complete.uploads.get(person), person) for person in range(len(federation))]),
            CCESA: np.stack([seen(sparse.uploads.get(person), person) for person in range(len(federation))]),
            GLOBAL: np.stack([draw(learnt(after), person, public) for person in range(len(federation))]),
            GUESS: np.stack([public.mean(0)] * len(federation)),
        }
        return Trial(everybody[firsts], people[firsts], drawn, everybody, people)


def draw(model: ModelArrays, person: int, public: Pictures) -> Pictures:
    """Return the picture that a softmax regression has of a person, with the brightness and contrast of public ones."""
    weights, bias = (np.asarray(array, np.float64) for array in model)
    face = invert_class(weights, bias, person).reshape(public.shape[1:])
    spread = max(float(face.std()), 1e-12)
    contrast = float(public.std(axis=tuple(range(1, public.ndim))).mean())
    return np.asarray(np.clip(float(public.mean()) + (face - face.mean()) * contrast / spread, 0, 1))


def invert_class(weights: npt.NDArray[np.float64], bias: npt.NDArray[np.float64], label: int) -> Vector:
    """Ascend from a grey picture towards one that a softmax regression assigns to a class.

    With p = softmax(W x + b), the gradient of p_label is p_label (1 - p_label) times that of the log odds, W_label -
    sum_j q_j W_j, where q is p among the other classes. The latter has the same direction and does not vanish where the
    model is certain. Steps have a fixed length for the pixel that moves most; pixels stay between 0 and 1.
    """
    x = np.full(weights.shape[1], 0.5)
    others = np.arange(len(weights)) != label
    for _ in range(_STEPS):
        scores = weights[others] @ x + bias[others]
        likely = np.exp(scores - scores.max())
        uphill = weights[label] - likely / likely.sum() @ weights[others]
        largest = np.abs(uphill).max()
        if not largest > 0:
            break
        x = np.clip(x + _STEP * uphill / largest, 0, 1)
    return x
