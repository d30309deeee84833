"""The four verbs of the library: train, aggregate, audit and plan. Heavy packages are imported when they are used."""

import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, overload

import numpy as np

from coterie.arithmetic.quantize import Quantizer
from coterie.arithmetic.ring import RingVector
from coterie.arithmetic.structures import V, listed, rebuilt
from coterie.arithmetic.structures import names as keys_of
from coterie.crypto.signing import Identity
from coterie.errors import ConfigError, InputError
from coterie.graphs.topology import Complete, Topology
from coterie.planning.arguments import DEPLOYMENT, check_plan_options, checked_argument
from coterie.planning.session import FEW_CLIENTS, Plan, recommend
from coterie.rounds import one_off
from coterie.rounds.arguments import check_aggregate_arguments, layout_of
from coterie.rounds.coordinator import SessionShape
from coterie.secagg.terms import Terms, ThreatMode
from coterie.settings import check_number
from coterie.transports.faults import Faults
from coterie.transports.memory import Carrier, Session, SessionReport

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coterie.auditing.findings import AuditReport
    from coterie.cohorts.participation import Participation
    from coterie.cohorts.policies import Policy
    from coterie.planning.population import PopulationPlan
    from coterie.runs.engine.metrics import UserMetric
    from coterie.runs.engine.run import RunResult
    from coterie.runs.report.observers import Observer
    from coterie.training.local import Loss
    from coterie.training.user_models import Module


@dataclass(frozen=True, eq=False)
class AggregationResult(Generic[V]):
    """The mean over the clients that stayed, its error bounds and its cost."""

    mean: V
    """The weighted mean over ``clients``, in the form of the inputs: an array, a tensor, a list or a dictionary."""
    total_weight: int
    """The sum of their weights; without weights, the number of clients."""
    clients: tuple[str, ...]
    """The clients whose arrays are in the mean."""
    clipped: int
    """The number of entries, over all clients, that lay outside the clipping range."""
    error_bound: float
    """An upper bound, for every entry, on the distance between this mean and the exact mean of the clipped inputs."""
    report: SessionReport
    """What the session cost, and which clients refused to continue."""

    @property
    def sum(self) -> V:
        """The weighted sum."""
        return rebuilt([array * self.total_weight for array in listed(self.mean)], self.mean)

    def __str__(self) -> str:
        from coterie.reports.words import count

        entries = "1 entry was" if self.clipped == 1 else f"{self.clipped:,} entries were"
        return (
            f"The mean over {count(len(self.clients), 'client')} with a total weight of {self.total_weight:,} is in "
            f"result.mean.\nEvery entry is within {self.error_bound:.3g} of the exact mean of the clipped inputs; "
            f"{entries} clipped."
        )


def aggregate(
    inputs: Mapping[str, V],
    *,
    clip: float,
    weights: Mapping[str, int] | None = None,
    precision: int = 16,
    topology: Topology | None = None,
    threshold: int | None = None,
    circles: Mapping[str, int] | None = None,
    minimum: int = 2,
    colluders: int | None = None,
    identities: Mapping[str, Identity] | None = None,
    dropout: float = 0.1,
    faults: Faults | None = None,
    workers: int | None = None,
    seed: int | None = None,
) -> AggregationResult[V]:
    """Aggregate each client's arrays or tensors without the server seeing any of them.

    >>> import numpy as np
    >>> result = aggregate({name: np.full(3, 0.5) for name in ("ann", "bob", "cid")}, clip=1.0)
    >>> result.clients, result.total_weight, result.mean.round(3).tolist()
    (('ann', 'bob', 'cid'), 3, [0.5, 0.5, 0.5])

    Args:
        inputs: for each client by name, a float array, a list of them, or a dictionary such as a torch module's
            ``state_dict`` (of which only floats are aggregated); or tensors instead. All clients give the same shapes.
        clip: entries are clipped to ``[-clip, clip]``.
        weights: a whole number for each client; the mean is weighted, and no client's weight is disclosed. A call is
            one session and remembers nothing. If you sum the same clients again, give them the same weights, ``clip``
            and ``precision``. If the weights change, sums over one circle are different equations, and enough of them
            determine its members' inputs.
        precision: bits for each entry; the ring is made large enough that no sum overflows.
        topology: which clients exchange shares with each other; by default chosen for the expected ``dropout``.
        threshold: the number of shares that reconstruct a client's secret; by default a majority, or what the chosen
            topology needs.
        circles: a circle's number for each client; a circle is aggregated whole or not at all.
        minimum: the fewest clients that a sum may have.
        colluders: clients that may collude with a server that lies; needed with a sparse ``topology`` of your own.
        identities: signing keys; with them, clients assume that the server may be malicious.
        dropout: the probability that a client drops out, from which the topology is chosen. On a sparse topology, a sum
            of fewer clients than are likely to be left is refused.
        faults: dropouts and other faults to simulate in this session.
        workers: threads to use; one for each core by default.
        seed: makes the *rounding* of entries reproducible; masks always come from the operating system.

    """
    if not isinstance(inputs, Mapping):
        raise InputError(f"inputs is a dictionary with the arrays of each client, not {type(inputs).__name__}")
    if not inputs:
        raise InputError("there is nothing to aggregate")
    check_aggregate_arguments(
        tuple(inputs),
        {"weights": weights, "circles": circles, "identities": identities},
        {"minimum": minimum, "threshold": threshold, "colluders": colluders, "workers": workers, "seed": seed},
        dropout,
    )
    if faults is not None and not isinstance(faults, Faults):
        raise ConfigError(f"faults is {Faults.__module__}.{Faults.__qualname__}(...) or None, not {faults!r:.60}")
    # Names and numbers of numpy become Python's, because messages cannot carry numpy's.
    names = tuple(map(str, inputs))
    minimum, threshold, colluders = map(_plain, (minimum, threshold, colluders))
    arrays = {name: listed(given) for name, given in inputs.items()}
    layouts = {name: layout_of(name, given) for name, given in arrays.items()}
    keys = {name: keys_of(given) for name, given in inputs.items()}
    layout = layouts[names[0]]
    odd = [name for name in names if layouts[name] != layout or keys[name] != keys[names[0]]]
    if odd:
        raise InputError(f"the arrays of {odd[0]!r} differ in name, shape or dtype from those of {names[0]!r}")
    if topology is None:
        sizes = tuple(Counter(circles.values()).values()) if circles else (1,)
        shape = _choose(len(names), sizes, dropout, identities is not None, threshold, colluders)
        topology, threshold, colluders = shape.topology, shape.threshold, shape.colluders
        minimum = max(minimum, shape.minimum)
    quantizer = Quantizer(clip, precision, len(names), max(weights.values()) if weights else 1)
    terms = Terms(
        session=os.urandom(32),
        clients=names,
        bits=quantizer.ring.bits,
        length=quantizer.length(layout),
        topology=topology,
        threshold=threshold,
        circles=tuple(_plain(circles[name]) for name in names) if circles else None,
        minimum=minimum,
        colluders=colluders,
        mode=ThreatMode.ACTIVE_SERVER if identities else ThreatMode.HONEST_BUT_CURIOUS,
        identities=tuple(identities[name].public for name in names) if identities else (),
    )
    generator = np.random.default_rng(seed)
    streams = dict(zip(names, generator.spawn(len(names)), strict=True))
    vectors: dict[str, RingVector] = {}
    clipped = 0
    for name in names:
        try:
            encoded = quantizer.encode(arrays[name], streams[name], weights[name] if weights else 1)
        except InputError as error:
            raise InputError(f"the input of {name!r}: {error}") from None
        vectors[name] = encoded.vector
        clipped += encoded.clipped
    session = Session(terms, one_off(terms, vectors, identities=identities), Carrier(faults, workers))
    result = session.run()
    decoded = quantizer.decode(result.total, layout, len(result.clients))
    return AggregationResult(
        mean=rebuilt(decoded.mean, inputs[names[0]]),
        total_weight=decoded.total_weight,
        clients=result.clients,
        clipped=clipped,
        error_bound=quantizer.error_bound(len(result.clients), decoded.total_weight),
        report=session.report,
    )


def _plain(value: Any) -> Any:  # noqa: ANN401 - an argument of any type
    """Return a number or text of numpy as Python's, and anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def _choose(
    clients: int, sizes: Sequence[int], dropout: float, active: bool, threshold: int | None, colluders: int | None
) -> SessionShape:
    if clients <= FEW_CLIENTS or threshold is not None:
        return SessionShape(Complete(), threshold, colluders)
    collusion = None if colluders is None else colluders / clients
    plan = recommend(
        clients, dropout, privacy=min(sizes), largest=max(sizes), collusion=collusion, active=active, length=1
    )
    return SessionShape(plan.guarantee.topology, plan.guarantee.threshold, plan.colluders, plan.minimum)


def train(
    model: "Module | Callable[[], Module]",
    train_set: Any = None,  # noqa: ANN401 - anything with (input, target) pairs
    test_set: Any = None,  # noqa: ANN401 - as above
    *,
    clients: int | Mapping[str, Any] | Sequence[Any] = 40,
    client_tests: Mapping[str, Any] | Sequence[Any] | None = None,
    cohort: int | None = None,
    privacy: int = 2,
    rounds: int = 100,
    epsilon: float | None = None,
    algorithm: str | None = None,
    policy: "Policy | None" = None,
    settings: Mapping[str, Any] | None = None,
    loss: "Loss | None" = None,
    metric: "UserMetric | None" = None,
    out: str | Path | None = None,
    resume: bool = False,
    ignore_stop: bool = False,
    progress: bool = True,
    observers: "Sequence[Observer]" = (),
) -> "RunResult":
    """Train a model across simulated clients, every round under secure aggregation.

    ``train(model, clients={"ann": data, "bob": other, ...}, test_set=test)`` or, to divide one set of examples among
    clients, ``train(model, train_set, test_set, clients=20, cohort=8, privacy=4)`` does what ``coterie run`` does, with
    your model and your data. Examples are a torch data set, a data loader, a pair of arrays (X, y), or a list of pairs.
    Inputs may be a dictionary of arrays, as tokenizers give: the model is then called with keyword arguments.

    Args:
        model: a module, or a function that makes one. The function is called with torch seeded from the setting
            ``seed``.
        train_set: examples, which are read into memory and divided among the clients. A data set that draws random
            numbers when it is read (augmentation) is read again in every pass, and so is that of a data loader with its
            own ``collate_fn``. A data loader's batch size and shuffling are used, unless ``settings`` give others.
        test_set: examples to evaluate the model on, if there are any; a :class:`~coterie.training.Dataset` holds both.
        clients: the number of clients; or the examples of each, by name or in a list. Under ``confined`` a client
            may be a group whose members have different columns of the same rows: ``({"bank": array, "shop": array},
            labels)``, with the same members in every group and in the ``test_set``.
        client_tests: test examples of each client, in the same form as ``clients``. Every client's score is saved in
            ``clients.csv``, and personal models are evaluated on the test examples of their client. Without them, the
            setting ``clients.holdout`` holds back a share of each client's examples for that.
        cohort: K, the number of clients that take part in a round; by default 8, or all if there are fewer.
        privacy: T; every combination of the sums of any number of rounds is about at least this many clients together.
            T is larger if larger circles fill the cohort better and no client is ever missing.
        rounds: the number of rounds.
        epsilon: the differential privacy of each client over all rounds, at the delta of the setting ``noise.delta``.
            Every client adds noise; the smallest amount that suffices is computed before the first round. The noise is
            discrete Gaussian unless ``settings`` give another ``noise.kind``. Without ``epsilon`` there is no noise.
        algorithm: the setting ``training.algorithm``: by default ``fedavg``; ``fedprox`` or ``scaffold`` for clients
            whose data differ, ``ditto`` for a personal model of each client in addition, ``confined`` for confined
            descent.
        policy: an object that selects cohorts, instead of circles of ``privacy`` clients. It has the method ``select``
            of :class:`~coterie.cohorts.policies.Policy`, and an attribute ``circles`` if it keeps circles together.
        settings: any settings of ``coterie run``, by their keys: ``{"training.learning_rate": 0.05, "seed": 1}``.
            They count before other arguments. Some defaults differ from ``coterie run``: all clients are available and
            none drops out (see ``availability`` and ``faults``), training.executor is ``auto``, training.workers is 0.
            Worker processes pay off for larger models, in scripts with ``if __name__ == "__main__":``.
        loss: a function from outputs and targets to one number for each example, or to their mean; by default cross
            entropy for labels, one-hot rows included, and the squared error for other targets.
        metric: another score of models: a function from outputs and targets, as numpy arrays, to a
            number. Larger is better, unless it is ``coterie.training.Metric(function, larger=False)``. Give several in
            a dictionary, by name.
        out: the folder of the run; by default a new one in ``runs``.
        resume: continue the run in ``out`` if there is one. All arguments except ``rounds`` must be the same as before.
            Additional rounds keep the learning rate that the schedule ended with.
        ignore_stop: with ``resume``, continue although early stopping or an observer ended the run.
        progress: show the run on the console, or as a bar in a notebook; otherwise, remarks on the run are Python
            warnings.
        observers: objects that are called after each round. A :class:`~coterie.runs.report.observers.Observer` may end
            the run by returning a :class:`~coterie.runs.records.record.Stop` with a reason. A resumed run then stays
            ended.

    Ctrl-C, or the stop button of a notebook, ends the run after the round in progress; pressed twice, it ends the run
    at once. Both raise :class:`~coterie.errors.RunInterrupted`, which says how to continue.

    """
    from coterie.runs.engine.federation import make_federation
    from coterie.runs.engine.interrupts import play
    from coterie.runs.engine.metrics import user_metrics
    from coterie.runs.engine.program import Wanted, check_train_arguments, own_config, own_dataset, reconciled
    from coterie.runs.engine.run import TrainingRun
    from coterie.runs.storage.folder import RunFolder
    from coterie.training.streams import torch_seed
    from coterie.training.user_models import instantiate

    clients, cohort, privacy, rounds = map(_plain, (clients, cohort, privacy, rounds))
    check_train_arguments(clients, settings, out, loss, observers)
    settings = {key: _plain(value) for key, value in (settings or {}).items()}
    if (train_set is None) == isinstance(clients, int):
        raise ConfigError("give train either a train_set, which is divided, or the examples of each client in clients")
    if resume and out is None:
        raise ConfigError("resume=True continues the run in out, so give its folder: train(..., out=..., resume=True)")
    chosen: dict[str, Any] = {"training.algorithm": algorithm} if algorithm is not None else {}
    learning = settings.get("training.algorithm", algorithm)
    dataset = own_dataset(train_set, test_set, clients, client_tests, algorithm=learning, one_hot=loss is None)
    count = clients if isinstance(clients, int) else len(clients)
    functions, metrics = user_metrics(metric)
    if metrics:
        chosen["training.metrics"] = [*metrics, *settings.get("training.metrics", ())]
    if epsilon is not None:
        if not isinstance(epsilon, Real) or isinstance(epsilon, bool) or not 0 < epsilon < math.inf:
            raise ConfigError(f"epsilon is a number above 0, or None for no noise, not {epsilon!r}")
        chosen |= {"noise.kind": "discrete-gaussian", "noise.epsilon": _plain(epsilon)}
    given = {key: value for key, value in settings.items() if not (metrics and key == "training.metrics")}
    wanted = Wanted(count, cohort, privacy, rounds, policy, {**chosen, **given})
    config, decisions = own_config(dataset, wanted)
    if epsilon is not None and config.noise.epsilon != epsilon:
        raise ConfigError(f"epsilon is {epsilon:g}, but settings contain noise as well: give only one of the two")
    module = instantiate(model, torch_seed(config.seed, "model"))
    federation = replace(make_federation(config, dataset, module, loss, policy, functions), decisions=decisions)
    everybody = list(observers)
    if progress:
        from coterie.runs.report.console import make_watcher

        everybody.insert(0, make_watcher())
    else:
        from coterie.runs.report.observers import Warner

        everybody.insert(0, Warner())
    path = Path(out) if out is not None else None
    if path and RunFolder.exists(path):
        if not resume:
            raise ConfigError(f"{path} holds a run already; resume=True continues it, another out starts a new one")
        folder, federation = RunFolder.open(path), replace(federation, decisions=())  # was shown when the run began
        changes = reconciled(folder, config, wanted)
        return play(TrainingRun.open(folder, federation, everybody, changes, ignore_stop=ignore_stop))
    return play(TrainingRun.begin(path, config, federation, everybody))


def audit(
    source: "str | PathLike[str] | Participation | NDArray[Any] | Sequence[Sequence[int]]",
    *,
    collusion: int = 0,
    weak_seconds: float = 2.0,
) -> "AuditReport":
    """Find out which clients the sums of past rounds expose, from the log of any federated learning system.

    >>> report = audit([[1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 0]])  # a row for each round, a column for each client
    >>> report.strong_privacy, [(found.client, found.round) for found in report.exposed]
    (1, [('3', 3), ('4', 3)])

    Args:
        source: the path of a log in any format that :mod:`coterie.auditing.logs` reads, a ledger (its file, or the URL
            of its database), the folder of a run, a matrix of 0 and 1, or a
            :class:`~coterie.cohorts.participation.Participation`, such as
            :func:`~coterie.auditing.logs.read_log` returns, which has options for logs of other systems.
        collusion: also report the T that is left if this number of members of a group colludes with the server.
        weak_seconds: time limit for the exact weak T, which may take minutes; after it, proven bounds are reported.

    A log with lines that cannot be read is refused, because they may change the verdict. ``read_log`` returns the rest,
    and a list of those lines.

    """
    from coterie.auditing import auditor
    from coterie.auditing.logs import read_log
    from coterie.cohorts.participation import Participation
    from coterie.reports.words import count, printable

    check_number("collusion", collusion, whole=True, least=0)
    check_number("weak_seconds", weak_seconds, least=0)
    if isinstance(source, Participation):
        history = source
    elif isinstance(source, str | PathLike):
        try:
            history = read_log(source)
        except InputError as error:
            if error.remedies:
                error.add_note("coterie.auditing.logs.read_log has these parameters: audit(read_log(source, ...))")
            raise
        if history.problems:
            first, unread = history.problems[0], count(history.unread, "line")
            raise InputError(f"{unread} of the log cannot be read; line {first.line}: {printable(first.reason)}")
    else:
        history = Participation.from_matrix(_matrix_of(source))
    return auditor.audit(history, weak_budget_seconds=weak_seconds, collusion=collusion)


def _matrix_of(source: Any) -> Any:  # noqa: ANN401 - whatever numpy reads as an array
    """Return a source that may be a matrix, and refuse what is none whatever its entries are."""
    from coterie.cohorts.participation import FOR_LISTS

    if (isinstance(source, Sequence) and not isinstance(source, bytes)) or hasattr(source, "__array__"):
        return source
    advice = "Give result.folder" if hasattr(source, "folder") else FOR_LISTS
    raise InputError(
        "audit takes the path of a log, of a ledger or of a run's folder, a matrix of 0 and 1, or what read_log "
        f"returns, not {type(source).__name__}. {advice}"
    )


@overload
def plan(
    clients: int,
    missing: float,
    *,
    privacy: int = ...,
    collusion: float | None = ...,
    roster: int | None = ...,
    topology: str = ...,
    privacy_bits: float | None = ...,
    reliability_bits: float | None = ...,
    active: bool = ...,
    length: int = ...,
    precision: int = ...,
) -> Plan: ...


@overload
def plan(
    clients: int,
    missing: float | Sequence[float],
    *,
    cohort: int,
    privacy: int | None = ...,
    lost: float = ...,
    over_select: bool = ...,
    collusion: float | None = ...,
    active: bool = ...,
    privacy_bits: float = ...,
    seed: int = ...,
) -> "PopulationPlan": ...


def plan(
    clients: int | None = None,
    missing: float | Sequence[float] | None = None,
    *,
    cohort: int | None = None,
    **options: Any,
) -> "Plan | PopulationPlan":
    """Plan one session of all ``clients``; or, with a ``cohort``, many rounds that select this many clients each.

    >>> found = plan(1000, 0.1, collusion=0.05)
    >>> found.guarantee.topology, found.guarantee.threshold
    (Harary(degree=36), 19)
    >>> plan(120, 0.3, cohort=12).recommended.privacy
    4

    Args:
        clients: the number of clients.
        missing: for a session, the probability that a client is *lost*: it drops out during the session. For many
            rounds, the probability that a client is *absent* when a round begins; or several probabilities, each for
            an equal share of the clients. It may also be given by these names, ``lost=`` and ``absent=``.
        cohort: K, the number of clients that take part in a round.
        options: for a session ``privacy``, ``collusion``, ``roster``, ``topology``, ``privacy_bits``,
            ``reliability_bits``, ``active``, ``length`` and ``precision``, as of
            :func:`~coterie.planning.session.recommend`; for many rounds ``privacy``, ``lost`` (the probability that a
            selected client drops out in the round), ``over_select``, ``collusion``, ``active`` and ``seed``, as of
            :func:`~coterie.planning.population.plan_population`.

    """
    if clients is None:
        raise ConfigError(
            "plan needs the number of clients: plan(1000, 0.1) for a session, or plan(500, 0.1, cohort=60) for many "
            f"rounds. {DEPLOYMENT}"
        )
    called = "absent" if cohort is not None else "lost"
    for name in (called, "dropout"):  # dropout is an old name
        if missing is None and name in options:
            missing = options.pop(name)
    if missing is None:
        raise ConfigError(
            "a plan needs missing, the second argument: the probability that a client is lost in a session, as in "
            "plan(1000, 0.1), or absent before a round, as in plan(500, 0.1, cohort=60)"
        )
    levels = missing if isinstance(missing, Sequence) and not isinstance(missing, str) else (missing,)
    if not levels:
        raise ConfigError("missing is empty: give a probability such as 0.1, or several")
    clients, cohort = checked_argument("clients", clients), checked_argument("cohort", cohort)
    options = {name: checked_argument(name, value) for name, value in options.items()}
    for level in levels:
        check_number("missing", level)
    if cohort is not None:
        from coterie.planning.population import plan_population

        check_plan_options(options, plan_population, "many rounds")
        return plan_population(clients, cohort, levels, **options)
    if len(levels) != 1:
        raise ConfigError(
            "a session has one share of lost clients; several shares are for many rounds, which need a cohort"
        )
    check_plan_options(options, recommend, "a session")
    return recommend(clients, levels[0], **options)
