"""The page on an attack: its threat model, its verdict, what it recovered, and the privacy card."""

from collections.abc import Sequence

from coterie.attacks.finding import Attack, AttackFinding, Strip
from coterie.reports.html import render
from coterie.reports.pictures import picture_uri


def attack_page(attack: Attack, finding: AttackFinding) -> str:
    """Return one self-contained HTML page."""
    return render(
        "coterie.attacks",
        "attack.html.j2",
        {str(number): plot.figure for number, plot in enumerate(finding.plots)},
        attack=attack,
        threat=attack.threat,
        finding=finding,
        strips=[(strip, _pictures(strip)) for strip in finding.strips],
    )


def _pictures(strip: Strip) -> Sequence[tuple[str, Sequence[str]]]:
    return [(label, [picture_uri(picture) for picture in pictures]) for label, pictures in strip.rows]
