"""How long a round of training takes with protection, compared with a plain one."""

import pytest
from tests.support.records import record_of_process

pytestmark = pytest.mark.bench


def test_protection_adds_at_most_a_tenth_to_a_round() -> None:
    """On a shared machine pairs of rounds differ by a tenth and more: the median of 40 still does by 0.02."""
    record = record_of_process("bench", "training", "--model", "lenet", "--rounds", "120")
    parameters = record["parameters"]
    assert (parameters["clients"], parameters["cohort"]) == (120, 12)
    assert (parameters["samples"], parameters["batch_size"], parameters["model_parameters"]) == (417, 50, 62_006)
    assert record["overhead"] <= 1.10
    assert record["memory_share"] <= 0.02
