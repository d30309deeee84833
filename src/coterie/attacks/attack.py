"""The interface of an attack: settings, a threat model, ``measure`` and ``report``.

An attack is a folder. Its settings are a frozen dataclass, ``measure`` runs the attack with and without its defence and
returns plain results, and the function ``report`` in the module ``report`` turns those into
:class:`~coterie.reports.findings.Findings`. ``report`` imports ``measure``, never the reverse, so that an experiment of
``coterie reproduce`` can measure without the report and write its own.
"""

import importlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar, Protocol, TypeAlias

from coterie.reports.findings import Findings

OnProgress: TypeAlias = Callable[[str, float], None]
"""Called with a description of the current work and the finished share of the whole work, from 0 to 1."""
OnShare: TypeAlias = Callable[[float], None]
"""Called with the finished share of one computation."""


@dataclass(frozen=True)
class Adversary:
    """The threat model: who attacks, and with what. An attack uses only this."""

    who: str
    sees: str
    knows: str
    may: str

    def facts(self) -> list[tuple[str, str]]:
        """Return questions and answers for a page."""
        return list(zip(("Who attacks", "Sees", "Knows", "May"), asdict(self).values(), strict=True))


class Attack(Protocol):
    """A frozen dataclass of an attack's settings."""

    title: ClassVar[str]

    @property
    def threat(self) -> Adversary:
        """Who attacks, and with what."""
        ...

    def measure(self, watch: OnProgress) -> Any:  # noqa: ANN401  (results of its own, which its report takes)
        """Run the attack with and without its defence; the results depend on the settings alone."""
        ...


def ignore_progress(_share: float) -> None:
    """Do nothing: for callers that do not show progress."""


def within(watch: OnShare, start: float, length: float) -> OnShare:
    """Return a callback for one part of a computation, which begins at ``start`` and takes ``length`` of the whole."""
    return lambda share: watch(start + share * length)


def run_attack(attack: Attack, watch: OnProgress) -> Findings:
    """Measure and report. The report is the function ``report`` in the module ``report`` of the attack's folder.

    An attack that is a single file has a method of that name instead.
    """
    measured = attack.measure(watch)
    report: Callable[[Any], Findings] | None = getattr(attack, "report", None)
    if report is None:
        folder = type(attack).__module__.rpartition(".")[0]
        report = partial(importlib.import_module(f"{folder}.report").report, attack)
    return report(measured)


def make_record(name: str, attack: Attack, findings: Findings) -> dict[str, Any]:
    """Return everything for JSON, in the order in which a person reads it; ``name`` is the one on the command line."""
    return {
        "attack": name,
        "threat_model": asdict(attack.threat),
        "settings": {name: value for name, value in vars(attack).items() if not name.startswith("_")},
        "setting": findings.about,
        **findings.numbers,
        "verdict": findings.headline,
        "remarks": list(findings.remarks),
        "card": [asdict(line) for line in findings.card],
    }
