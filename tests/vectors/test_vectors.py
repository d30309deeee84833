import json

import numpy as np
import pytest
from tests.vectors.generate import FOLDER, SESSIONS, transcript


@pytest.mark.parametrize("name", SESSIONS)
def test_sessions_reproduce_their_transcripts(name: str) -> None:
    assert json.loads(json.dumps(transcript(*SESSIONS[name]))) == json.loads((FOLDER / f"{name}.json").read_text())


@pytest.mark.parametrize("name", SESSIONS)
def test_the_recorded_sum_is_the_sum_of_the_recorded_inputs(name: str) -> None:
    vector = json.loads((FOLDER / f"{name}.json").read_text())
    total = np.sum([np.array(vector["inputs"][client], dtype=object) for client in vector["aggregated"]], axis=0)
    assert vector["sum"] == (total % 2 ** vector["terms"]["bits"]).tolist()


def test_batches_are_aligned_in_the_recorded_session() -> None:
    vector = json.loads((FOLDER / "harary-batches.json").read_text())
    assert vector["dropouts"]["mask"] == ["client-06"]
    assert vector["aggregated"] == [f"client-{number:02}" for number in range(6)]
