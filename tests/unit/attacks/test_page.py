"""The page on an attack, and its record: all that was found is there, and nothing of it is taken for markup."""

import base64
import io
import json
import re

import numpy as np
import pytest
from matplotlib.image import imread
from tests.support.attacks import PIXELS, FakeAttack, finding

from coterie.attacks.finding import Outcome, record
from coterie.attacks.page import attack_page
from coterie.reports.words import Level


def test_everything_is_on_the_page_in_order() -> None:
    page = attack_page(FakeAttack(), finding())
    told = [
        *(
            "A fake attack",
            "Somebody",
            "Everything.",
            "the headline",
            "the setting",
            "the strip",
            "as it was",
            "as seen",
        ),
        *("beneath", "the plot", "below it", "the table", "the note", "Privacy card", "why", "a remark"),
    ]
    body = page[page.index("<body") :]
    places = [body.index(text) for text in told]
    assert places == sorted(places)


def test_nothing_is_taken_for_markup() -> None:
    page = attack_page(FakeAttack(), finding())
    assert "<script>window.hacked" not in page
    assert page.count("&lt;script&gt;window.hacked=1&lt;/script&gt;") >= 10


@pytest.mark.parametrize("level", Level)
def test_the_verdict_has_the_colour_of_its_level(level: Level) -> None:
    page = attack_page(FakeAttack(), finding(level=level))
    assert f'class="verdict {level}"' in page
    assert f"{level.mark} {level.label}" in page


def test_the_card_says_each_outcome_with_its_colour() -> None:
    page = attack_page(FakeAttack(), finding())
    for outcome in Outcome:
        assert f'outcome {outcome.level}">{outcome.level.mark} {outcome}' in page


def test_pictures_are_those_of_the_strip() -> None:
    page = attack_page(FakeAttack(), finding())
    pictures = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="([^"]+)"', page)
    assert [alt for _, alt in pictures] == [f"{row}, target {n}" for row in ("as it was", "as seen") for n in (1, 2)]
    drawn = [imread(io.BytesIO(base64.b64decode(data)))[..., :3] for data, _ in pictures]
    expected = np.stack([PIXELS] * 3, -1)
    assert np.abs(np.stack(drawn[:2]) - expected).max() < 0.01
    assert np.abs(np.stack(drawn[2:]) - expected).max() < 0.01


def test_a_page_needs_neither_plots_nor_strips() -> None:
    page = attack_page(FakeAttack(), finding(plots=(), strips=(), remarks=()))
    assert "<img" not in page[page.index("<body") :]
    assert "Privacy card" in page


def test_the_record_is_what_json_can_say() -> None:
    attack, found = FakeAttack(strength=5), finding()
    told = json.loads(json.dumps(record(attack, found)))
    assert told["attack"] == "fake"
    assert told["settings"] == {"strength": 5}
    assert told["threat_model"]["sees"] == "Everything."
    assert told["policies"]["random"]["median"] == 0.25
    assert told["verdict"] == found.headline
    assert [line["outcome"] for line in told["card"]] == ["eliminated", "reduced", "not eliminated"]
    assert list(told)[:3] == ["attack", "threat_model", "settings"]
