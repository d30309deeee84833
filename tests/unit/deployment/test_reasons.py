"""The vocabulary of refusals: every word is explained, in the server's log and in the guide."""

import re
from pathlib import Path

import pytest

from coterie.deployment.reasons import Asked, Reason

GUIDE = (Path(__file__).parents[3] / "docs" / "flower.md").read_text()
ASKED = Asked("train_metrics", ("loss",), ("w",), "n", "Coterie comes first")
COUNTED = {Reason.METRIC, Reason.ARRAY, Reason.SHAPE}


@pytest.mark.parametrize("reason", Reason)
def test_every_word_has_its_own_meaning(reason: Reason) -> None:
    word = f"{reason}:0" if reason in COUNTED else str(reason)
    said = ASKED.refusal(word)
    assert said != ASKED.outside
    assert said not in {
        ASKED.refusal(f"{other}:0" if other in COUNTED else str(other)) for other in Reason if other is not reason
    }


def test_the_guide_lists_every_word() -> None:
    (table,) = re.findall(r"\| word \| what the server's log says .*?\n\n", GUIDE, re.DOTALL)
    cells = [line.split("|")[1] for line in table.strip().splitlines()[2:]]
    words = [word.removesuffix(":N") for cell in cells for word in re.findall(r"`([a-z:N]+)`", cell)]
    assert sorted(words) == sorted(Reason)
