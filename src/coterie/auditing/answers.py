"""Answers to further questions about a log: colluders, a forecast, and the same log with circles."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from coterie.auditing.colluders import AnyColluders, NamedColluders, collude, find_clients, judge_any
from coterie.auditing.findings import AuditReport
from coterie.auditing.forecast import Forecast, check_size, forecast
from coterie.auditing.what_if import WholeCircles, check_circles, with_circles
from coterie.cohorts.participation import Participation
from coterie.errors import ConfigError, Remedy
from coterie.reports.words import printable

_ANY = re.compile(r"any[ :]?0*([1-9]\d{0,8})")
_WHAT_IF = re.compile(r"circles=(\d{1,9})")


@dataclass(frozen=True)
class Questions:
    """The questions of a user in addition to the verdict."""

    colluders: tuple[str, ...] = ()
    any_colluders: int = 0
    forecast: bool = False
    circles: int = 0
    seed: int = 0

    @classmethod
    def parse(cls, colluders: Sequence[str] = (), what_if: str | None = None, **others: Any) -> "Questions":  # noqa: ANN401 - the other fields, as they are
        """Return the questions that a user writes: names or "any 5" for colluders, "circles=4" for what-if."""
        anyone = [found for text in colluders if (found := _ANY.fullmatch(text.strip()))]
        if len(anyone) > 1 or (anyone and len(colluders) > 1):
            raise ConfigError("colluders are either names or, once, a number of any clients, as in “any 5”")
        circles = _WHAT_IF.fullmatch(what_if.strip()) if what_if is not None else None
        if what_if is not None and not (circles and int(circles[1])):
            raise ConfigError(Remedy("what_if", mention=True), f" is written as circles=4, not {printable(what_if)}")
        return cls(
            colluders=() if anyone else tuple(colluders),
            any_colluders=int(anyone[0][1]) if anyone else 0,
            circles=int(circles[1]) if circles else 0,
            **others,
        )

    def check(self, participation: Participation) -> None:
        """Refuse a question that this log cannot answer, before the audit is made."""
        find_clients(self.colluders, participation.clients)
        if self.forecast:
            check_size(participation)
        if self.circles:
            check_circles(participation, self.circles)

    def answer(self, participation: Participation, report: AuditReport) -> "Answers":
        """Answer all questions about a log and its audit. The seed makes random draws reproducible."""
        named = None
        if self.colluders:
            names = find_clients(self.colluders, participation.clients)
            named = collude(participation, names, [found.client for found in report.exposed])
        return Answers(
            named=named,
            anyone=judge_any(report, self.any_colluders) if self.any_colluders else None,
            forecast=forecast(participation, report, seed=self.seed) if self.forecast else None,
            circles=with_circles(participation, self.circles, seed=self.seed) if self.circles else None,
        )


@dataclass(frozen=True)
class Answers:
    """The answers; None for a question that was not asked."""

    named: NamedColluders | None = None
    anyone: AnyColluders | None = None
    forecast: Forecast | None = None
    circles: WholeCircles | None = None

    def holds(self, privacy: int) -> bool:
        """Return whether no client is exposed to the colluders, and T of the others is at least ``privacy``."""
        if self.anyone and self.anyone.isolate is not False:
            return False
        strong = self.named.strong_privacy if self.named else None
        return not (self.named and self.named.exposed) and (strong is None or strong >= privacy)

    def words(self) -> list[tuple[str, str]]:
        """Return the answers as pairs of a title and a text."""
        words = []
        if self.named:
            words.append(("Named colluders", self.named.words()))
        if self.anyone:
            words.append(("Any colluders", self.anyone.words()))
        if self.forecast:
            over = self.forecast.last.since is not None  # no client is left that could be exposed
            model = "" if over else f" {self.forecast.model()}"
            words.append(("Forecast", f"{self.forecast.words()}{model}"))
        if self.circles:
            words.append(("With circles", self.circles.words()))
        return words

    def as_dict(self) -> dict[str, Any]:
        """Return the answers as plain values for JSON."""
        found: dict[str, Any] = {}
        if self.named:
            exposed = [{"client": one.client, "round": one.round} for one in self.named.exposed]
            found["colluders"] = {
                "names": list(self.named.names),
                "strong_privacy": self.named.strong_privacy,
                "exposed": exposed,
                "by_collusion": self.named.by_collusion,
            }
        if self.anyone:
            found["any_colluders"] = {"members": self.anyone.members, "isolate": self.anyone.isolate}
        if self.forecast:
            found["forecast"] = {**asdict(self.forecast), "model": self.forecast.model()}
        if self.circles:
            found["what_if"] = {**asdict(self.circles), "share": self.circles.share}
        return found
