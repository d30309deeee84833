"""Flower's SecAgg+ as we time it: its round is right, and its masks are what the module says of them."""

import logging
import random
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest

from coterie.bench.rivals.flower_secagg import run_secaggplus
from coterie.errors import ConfigError, RoundAborted

STEPS = {"advertise", "share", "mask", "reveal"}

pytestmark = [
    pytest.mark.bench,
    pytest.mark.skipif(find_spec("flwr") is None, reason="flwr is not installed: pip install 'coterie[flower]'"),
]


@pytest.mark.parametrize("shares", [0, 7])
def test_a_small_round_is_timed_and_right(shares: int) -> None:
    times = run_secaggplus(10, 100, 0.2, shares, 4, seed=1)
    assert set(times.client_ms) == set(times.upload_bytes) == STEPS
    assert min(times.client_ms.values()) > 0
    assert times.server_ms > 0
    # Eight of ten clients take every step, and at least half of them as long as the median.
    assert times.session_ms > times.server_ms + 4 * sum(times.client_ms.values())
    # Two levels of 16 / 2^22 are what stochastic rounding can do; an exact mean would not have been rounded.
    assert 0 < times.max_error < 2 * 16 / 2**22
    # Flower sends every entry and the weight as 64-bit integers.
    assert 101 * 8 < times.upload_bytes["mask"] < 101 * 8 + 1000
    assert times.total_upload_bytes == sum(times.upload_bytes.values())


def test_dropped_clients_cost_shares_of_their_private_keys() -> None:
    everyone = run_secaggplus(10, 10, 0.0, 0, 4, seed=2)
    eight = run_secaggplus(10, 10, 0.2, 0, 4, seed=2)
    # A share of a 32-byte seed takes 52 bytes, one of a 306-byte PEM key 324 (blocks of 16, an index of 4);
    # both of the dropped clients are everyone's neighbours.
    growth = eight.upload_bytes["reveal"] - everyone.upload_bytes["reveal"]
    assert 2 * (324 - 52) <= growth < 2 * (324 - 52) + 16


def test_the_process_is_unchanged_and_the_result_depends_on_the_seed() -> None:
    from flwr.supercore.task_identity import TaskIdentity

    def surroundings() -> tuple[object, ...]:
        identity = (TaskIdentity._run_id, TaskIdentity._node_id, TaskIdentity._task_id)
        numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002
        return identity, logging.getLogger("flwr").disabled, random.getstate(), repr(numpy_state)

    before = surroundings()
    errors = [run_secaggplus(5, 50, 0.0, 3, 2, seed=seed).max_error for seed in (3, 3, 4)]
    assert errors[0] == errors[1] != errors[2]
    with pytest.raises(RoundAborted, match="halted after its 'mask' step"):
        run_secaggplus(10, 10, 0.5, 5, 4, seed=3)
    assert surroundings() == before


def test_a_wrong_aggregate_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.server.workflow.secure_aggregation import secaggplus_workflow

    def no_mask(seed: bytes, modulus: int, shapes: list[tuple[int, ...]]) -> list[object]:
        return [np.zeros(shape, np.int64) for shape in shapes]

    monkeypatch.setattr(secaggplus_workflow, "pseudo_rand_gen", no_mask)
    with pytest.raises(RoundAborted, match="off by"):
        run_secaggplus(5, 10, 0.0, 3, 2, seed=5)


def test_a_failing_client_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    # The function of the same name hides the module from an import statement.
    secaggplus_mod = import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
    monkeypatch.setattr(secaggplus_mod, "create_shares", lambda secret, threshold, shares: [])
    with pytest.raises(RoundAborted, match="'share' step"):
        run_secaggplus(5, 10, 0.0, 3, 2, seed=6)


def test_more_clients_than_flower_can_add_up_are_refused() -> None:
    with pytest.raises(ConfigError, match="more than 1023 clients"):
        run_secaggplus(1024, 1, 0.0, 3, 2, seed=7)


def test_flower_masks_are_what_the_module_says() -> None:
    from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
    from flwr.supercore.primitives.asymmetric import generate_key_pairs

    def folded(seed: bytes) -> int:
        return int(np.bitwise_xor.reduce(np.frombuffer(seed, "<u4")))

    def mask(seed: bytes) -> list[int]:
        (values,) = pseudo_rand_gen(seed, 2**32, [(1000,)])
        return [int(value) for value in values]

    seed = random.Random(8).randbytes(32)
    mersenne_twister = np.random.RandomState(folded(seed))
    assert mask(seed) == mersenne_twister.randint(0, 2**32 - 1, 1000, dtype=np.int64).tolist()
    assert mask(seed) == mask(seed[4:] + seed[:4])  # another secret, the same fold, the same mask

    pairwise = [folded(generate_shared_key(generate_key_pairs()[0], generate_key_pairs()[1])) for _ in range(64)]
    constant = ~np.bitwise_or.reduce(pairwise) | np.bitwise_and.reduce(pairwise)
    assert int(constant) & 0xFFFFFFFF == 0x80808080  # the other 28 bits vary
