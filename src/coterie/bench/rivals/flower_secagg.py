"""Flower's own SecAgg+, timed in this process, for comparison with ours.

This runs the code that users of flwr 1.41.0 get: ``SecAggPlusWorkflow`` on the server and
``secaggplus_mod`` in every client. Two parts that are not secure aggregation are replaced: the network
(each request only passes through Flower's protobuf encoding) and local training (a random vector, whose
time is excluded). Encoding and delivery are not counted, which favours Flower.

A client's time is processor time, as in our own sessions. It is that of the whole process, because
Flower deals shares in threads of its own, so run nothing beside it. The server's is wall-clock time.

Read its mask times with care: **the masks are cheap because they are not cryptographic.**
``pseudo_rand_gen`` XORs the little-endian 32-bit words of a seed into one word and seeds numpy's
``RandomState``, the MT19937 generator, with it.

* A self-mask therefore has 2^32 possible values, although its seed has 32 random bytes.
* A pairwise seed is base64 text. The top bit of every ASCII byte is 0, and stays 0 under XOR, so only 28
  bits vary: a pairwise mask is one of only 2^28.
* MT19937 is linear over GF(2) and predictable from its output; it was never meant to hide anything.
* Entries are drawn from [0, 2^32 - 2] for a ring of 2^32, so they are not even uniform.

Bell et al. 2020 (SecAgg+) require a secure pseudorandom generator, as Bonawitz et al. 2017 do.
"""

import logging
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from time import perf_counter, process_time
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.errors import ConfigError, RoundAborted
from coterie.host import install_command

FLOWER_VERSION = "1.41.0"
"""The release whose internals this module drives and describes."""

# Flower's names for the four steps, and ours.
_STEPS = {
    "setup": "advertise",
    "share_keys": "share",
    "collect_masked_vectors": "mask",
    "unmask": "reveal",
}

# Flower rounds weight / max_weight to a multiple of 2^-22. With a power of two below, the ratio of every
# integer weight already is one, so the stochastic rounding of the vectors is the only error.
_MAX_WEIGHT = 128
_MIN_WEIGHT = _MAX_WEIGHT // 2

# flwr may be absent, so none of its types can be named here.
_Flwr: TypeAlias = Any


@dataclass(frozen=True)
class FlowerTimes:
    """What one round of Flower's secure aggregation cost.

    ``client_ms`` and ``upload_bytes`` have the keys ``advertise``, ``share``, ``mask``, ``reveal`` and hold
    medians over the clients that took the step. Uploads are the protobuf size of a reply's content.
    ``server_ms`` is the time in the workflow less all time in clients; ``session_ms`` adds the time of every
    client, one after the other. ``max_error`` is the largest deviation from the survivors' weighted mean.
    """

    client_ms: dict[str, float]
    server_ms: float
    session_ms: float
    upload_bytes: dict[str, int]
    max_error: float

    @property
    def total_upload_bytes(self) -> int:
        """Bytes a client that stays to the end uploads: the sum of its medians over the four steps."""
        return sum(self.upload_bytes.values())


def run_secaggplus(clients: int, length: int, dropout: float, shares: int, threshold: int, seed: int) -> FlowerTimes:
    """Time one round of Flower's SecAgg+, or with ``shares == 0`` of its SecAgg (complete graph).

    Each client splits its secrets into ``shares`` shares, one of which it keeps; ``threshold`` of them
    recover a secret. ``round(dropout * clients)`` clients vanish after sharing their keys and before sending
    a masked vector. That is the costliest moment for the server: it must rebuild each one's private key and
    every pairwise mask it had. ``seed`` fixes inputs, weights, who drops and Flower's neighbour ring;
    keys come from the operating system.

    The aggregate is checked. With weights of at least half the maximum and a rounding error below
    one quantisation level per client, the mean is off by at most two levels.

    Raises :class:`~coterie.errors.ConfigError` when flwr is missing or the parameters do not fit together and
    :class:`~coterie.errors.RoundAborted` when Flower's round fails or its aggregate is wrong.
    """
    check(clients, length, dropout, shares, threshold)
    from flwr.common import parameters_to_ndarrays
    from flwr.server.workflow import SecAggPlusWorkflow, SecAggWorkflow

    workflow = (
        SecAggPlusWorkflow(shares, threshold, max_weight=_MAX_WEIGHT)
        if shares
        else SecAggWorkflow(threshold, max_weight=_MAX_WEIGHT)
    )
    if clients * workflow.quantization_range >= workflow.modulus_range:
        largest = (workflow.modulus_range - 1) // workflow.quantization_range
        raise ConfigError(f"Flower's sums can overflow with more than {largest} clients, not {clients}")

    rng = np.random.default_rng(seed)
    nodes = [int(node) for node in rng.choice(2**62, clients, replace=False)]
    fleet: _Flwr = _Fleet(nodes, set(nodes[: round(dropout * clients)]), length, rng)
    strategy: _Flwr = _OneRound(nodes, fleet)
    context = _server_context(strategy)
    with _borrowed_globals(seed):
        start = perf_counter()
        workflow(fleet, context)
        server_s = perf_counter() - start - fleet.away_s

    if strategy.parameters is None:  # the workflow logs why it halts, and returns as if nothing had happened
        raise RoundAborted(
            f"Flower halted after its '{fleet.last_step}' step: some client has fewer than {threshold} "
            f"neighbours left; lower the dropout or the threshold"
        )
    (aggregate,) = parameters_to_ndarrays(strategy.parameters)
    max_error = float(np.abs(aggregate - fleet.weighted_mean()).max())
    tolerance = 2 * (2 * workflow.clipping_range / workflow.quantization_range)
    if not max_error <= tolerance:
        raise RoundAborted(f"Flower's aggregate is off by {max_error:.3g}; rounding explains {tolerance:.3g}")

    return FlowerTimes(
        client_ms={step: 1e3 * median(times) for step, times in fleet.client_s.items()},
        server_ms=1e3 * server_s,
        session_ms=1e3 * (server_s + sum(sum(times) for times in fleet.client_s.values())),
        upload_bytes={step: int(median(sizes)) for step, sizes in fleet.upload_bytes.items()},
        max_error=max_error,
    )


def check(clients: int, length: int, dropout: float, shares: int, threshold: int) -> None:
    """Refuse parameters that Flower would misread, or fail on in the middle of a run, and a missing Flower."""
    if clients < 3 or length < 1:
        raise ConfigError(f"need at least 3 clients and 1 number, not {clients} and {length}")
    if not 0 <= dropout < 1:
        raise ConfigError(f"dropout must be at least 0 and below 1, not {dropout}")
    # Flower's ring has as many neighbours on either side, so with a client's own share the count is odd.
    if shares and not (3 <= shares <= clients and (shares % 2 or shares == clients)):
        raise ConfigError(f"shares must be 0 (complete graph) or odd, from 3 to {clients}, not {shares}")
    # Flower reads a threshold of 1 as "all of them", and wants it below the number of shares.
    if not 2 <= threshold < (shares or clients):
        raise ConfigError(f"threshold must be from 2 to {(shares or clients) - 1}, not {threshold}")
    _require_flower()


def _require_flower() -> None:
    """Check the installed flwr without importing it; switch its telemetry off before anything does."""
    try:
        installed = version("flwr")
    except PackageNotFoundError:
        installed = "not installed"
    if installed != FLOWER_VERSION:
        raise ConfigError(
            f"comparing with Flower needs flwr {FLOWER_VERSION} ({installed}): {install_command('flower')}"
        )
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")


@contextmanager
def _borrowed_globals(seed: int) -> Iterator[None]:
    """Set the global state that Flower reads, and restore it afterwards.

    Flower builds messages only inside a task, shuffles its ring with ``random`` and rounds with the global
    generator of numpy; its log would print over ours.
    """
    from flwr.supercore.task_identity import TaskIdentity

    # The public properties raise while unset, so only the attributes behind them can be saved.
    identity = {name: getattr(TaskIdentity, name) for name in ("_run_id", "_node_id", "_task_id")}
    logger = logging.getLogger("flwr")
    disabled = logger.disabled
    python_state = random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002 (the generator Flower uses)
    try:
        for name in identity:
            setattr(TaskIdentity, name, 1)
        logger.disabled = True
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 - as above
        yield
    finally:
        for name, value in identity.items():
            setattr(TaskIdentity, name, value)
        logger.disabled = disabled
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002 - as above


def _server_context(strategy: _Flwr) -> _Flwr:
    """Build the server's context at round 1. Its model is empty: sending one out is not aggregation."""
    from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict
    from flwr.server import LegacyContext
    from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key

    state = RecordDict({MAIN_CONFIGS_RECORD: ConfigRecord({Key.CURRENT_ROUND: 1}), MAIN_PARAMS_RECORD: ArrayRecord()})
    return LegacyContext(Context(run_id=1, node_id=1, node_config={}, state=state, run_config={}), None, strategy)


class _OneRound:
    """A strategy that selects every client and keeps the aggregate instead of averaging anything again."""

    def __init__(self, nodes: Sequence[int], fleet: _Flwr) -> None:
        from flwr.server.compat.grid_client_proxy import GridClientProxy

        self._proxies = [GridClientProxy(node, fleet, run_id=1) for node in nodes]
        self.parameters: _Flwr = None

    def configure_fit(self, server_round: int, parameters: _Flwr, client_manager: _Flwr) -> list[tuple[_Flwr, _Flwr]]:
        from flwr.common import FitIns

        return [(proxy, FitIns(parameters, {})) for proxy in self._proxies]

    def aggregate_fit(self, server_round: int, results: _Flwr, failures: _Flwr) -> tuple[None, dict[str, float]]:
        self.parameters = results[0][1].parameters  # the workflow gives every result the same aggregate
        return None, {}


class _Fleet:
    """All clients, behind the one method of a Flower grid that the workflow calls. It measures their time."""

    def __init__(self, nodes: Sequence[int], dropped: set[int], length: int, rng: np.random.Generator) -> None:
        from flwr.app import Context, RecordDict

        self._contexts = {
            node: Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={}) for node in nodes
        }
        self._dropped = dropped
        self._rng = rng
        self._weighted_sum = np.zeros(length)
        self._total_weight = 0
        self._training_s = 0.0
        self.away_s = 0.0
        self.last_step = ""
        self.client_s: dict[str, list[float]] = {step: [] for step in _STEPS.values()}
        self.upload_bytes: dict[str, list[int]] = {step: [] for step in _STEPS.values()}

    def weighted_mean(self) -> NDArray[np.float64]:
        """Average what the clients trained, in the clear."""
        return self._weighted_sum / self._total_weight

    def send_and_receive(self, messages: Iterable[_Flwr], *, timeout: float | None = None) -> list[_Flwr]:
        """Let every client answer, one after the other; clients that dropped out do not answer."""
        start = perf_counter()
        replies = [reply for message in messages if (reply := self._answer(message)) is not None]
        self.away_s += perf_counter() - start
        return replies

    def _answer(self, message: _Flwr) -> _Flwr:
        from flwr.client.mod import secaggplus_mod
        from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key
        from flwr.common.serde import message_from_proto, message_to_proto, recorddict_to_proto

        node = message.metadata.dst_node_id
        step = self.last_step = _STEPS[message.content[RECORD_KEY_CONFIGS][Key.STAGE]]
        if step == "mask" and node in self._dropped:
            return None
        # Clients take their request apart, and the server sends one object to all: each needs its own copy.
        request = message_from_proto(message_to_proto(message))
        training_s = self._training_s
        start = process_time()
        try:
            reply = secaggplus_mod(request, self._contexts[node], self._train)
        except Exception as error:  # Flower would go on without this client, and we would time less work
            raise RoundAborted(f"a Flower client failed in the '{step}' step: {error}") from error
        elapsed = process_time() - start
        self.client_s[step].append(elapsed - (self._training_s - training_s))
        self.upload_bytes[step].append(recorddict_to_proto(reply.content).ByteSize())
        return reply

    def _train(self, message: _Flwr, context: _Flwr) -> _Flwr:
        """Replace local training. Inputs are made here and added at once, and none is stored."""
        from flwr.app import Message
        from flwr.common import Code, FitRes, Status, ndarrays_to_parameters
        from flwr.compat.common.recorddict_compat import fitres_to_recorddict

        start = process_time()
        vector = self._rng.uniform(-1, 1, self._weighted_sum.size)
        weight = int(self._rng.integers(_MIN_WEIGHT, _MAX_WEIGHT, endpoint=True))
        self._weighted_sum += weight * vector
        self._total_weight += weight
        result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([vector]), weight, {})
        reply = Message(fitres_to_recorddict(result, keep_input=False), reply_to=message)
        self._training_s += process_time() - start
        return reply
