"""An attack that finds what it is told to, for pages and consoles that only show it."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from coterie.attacks.finding import CardLine, Finding, Outcome, Plot, Strip, Table, ThreatModel, Watch
from coterie.reports.html import Figure
from coterie.reports.words import Level

HOSTILE = "<script>window.hacked=1</script> [bold red]a & b"
PIXELS = np.linspace(0, 1, 2 * 3 * 4).reshape(2, 3, 4)


def finding(**changes: Any) -> Finding:  # noqa: ANN401
    """What was found, with every part there is, each with text that a page or a terminal could read as its own."""
    settings: dict[str, Any] = {
        "level": Level.CAUTION,
        "headline": f"the headline {HOSTILE}",
        "setting": f"the setting {HOSTILE}",
        "measures": {"error": 0.5, "policies": {"random": {"median": 0.25}}},
        "tables": [Table(f"the table {HOSTILE}", ("name", "number"), [(HOSTILE, "7")], f"the note {HOSTILE}")],
        "card": [CardLine(f"line {outcome}", HOSTILE, outcome, f"why {HOSTILE}") for outcome in Outcome],
        "plots": [Plot("the plot", Figure([{"type": "scatter", "y": [1, 2]}], {}, 120, "what it shows"), "below it")],
        "strips": [Strip("the strip", [("as it was", PIXELS), ("as seen", np.stack([PIXELS] * 3, -1))], "beneath")],
        "remarks": (f"a remark {HOSTILE}",),
    }
    return Finding(**(settings | changes))


@dataclass(frozen=True)
class FakeAttack:
    """Settings, and what they lead to."""

    name: ClassVar[str] = "fake"
    title: ClassVar[str] = "A fake attack"

    strength: int = 3
    _found: Finding = field(default_factory=finding)

    @property
    def threat(self) -> ThreatModel:
        return ThreatModel(f"Somebody {HOSTILE}.", "Everything.", "Nothing.", "Anything.")

    def play(self, watch: Watch) -> Finding:
        for share in 0.0, 0.5, 1.0:
            watch("faking", share)
        return self._found
