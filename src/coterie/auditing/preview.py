"""A preview of how a log was interpreted, and the evidence that belongs to a verdict.

A user must be able to see that the log was interpreted correctly, and to find out later which bytes were audited, by
which version and with which options.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from coterie.cohorts.participation import LogReading, Mentions, Participation
from coterie.reports.words import count, printable, size
from coterie.version import __version__

_ROUNDS = 3  # rounds shown
_NAMES = 6  # clients shown in a round
_KINDS = 8  # kinds of ignored rows shown


@dataclass(frozen=True)
class Evidence:
    """The input, options and version that a verdict is based on."""

    source: str
    sha256: str
    """The digest of the input file; empty for a ledger, which has a head instead."""
    size: int
    head: str
    version: str
    options: Mapping[str, Any]
    """The options of the audit."""


def gather_evidence(participation: Participation, source: str, options: Mapping[str, Any]) -> Evidence:
    """Return the evidence for the verdict on ``participation``, read from ``source``."""
    reading = participation.reading or LogReading("")
    return Evidence(source, reading.sha256, reading.size, reading.head, __version__, dict(options))


def evidence_words(evidence: Evidence) -> list[tuple[str, str]]:
    """Return the evidence as pairs of a title and a text."""
    words = [("Source", printable(evidence.source, 200))]
    if evidence.sha256:
        words.append(("SHA-256", f"{evidence.sha256} ({size(evidence.size)})"))
    if evidence.head:
        words.append(("Head", evidence.head))
    given = " ".join(_option(name, value) for name, value in evidence.options.items())
    return [*words, ("Options", given or "none"), ("Version", f"coterie {evidence.version}")]


def preview(participation: Participation) -> list[tuple[str, str]]:
    """Return how a log was interpreted, as pairs of a title and a text."""
    reading = participation.reading or LogReading("")
    rounds, clients = participation.rounds, participation.clients
    span = f": {printable(rounds[0])} to {printable(rounds[-1])}" if len(rounds) > 1 else ""
    order = f", by {reading.order}" if reading.order not in ("", "number") else ""
    words = [("Read as", reading.format)] if reading.format else []
    words.append(("Rounds", f"{len(rounds):,}{span}{_from(reading.rounds)}{order}"))
    words.append(("Clients", f"{_some(clients)}{_from(reading.clients)}"))
    for label, members in islice(participation, _ROUNDS):
        words.append((f"Round {printable(label, 20)}", _some(members)))
    if reading.left_out:
        rows = sum(times for _, times in reading.left_out)
        kinds = ", ".join(f"{what} ({times:,})" for what, times in reading.left_out[:_KINDS])
        more = ", ..." if len(reading.left_out) > _KINDS else ""
        words.append(("Left out", f"{count(rows, 'row')}: {kinds}{more}"))
    if reading.duplicates.count:
        times = count(reading.duplicates.count, "mention")
        words.append(
            (
                "Duplicates",
                f"{times} of a client that its round has already; each counts once: {_mentioned(reading.duplicates)}",
            )
        )
    if reading.contradictions.count:
        clients_of = count(reading.contradictions.count, "client of a round", "clients of rounds")
        words.append(
            (
                "Contradictions",
                f"{clients_of} both aggregated and lost, by different rows; they count as aggregated: "
                f"{_mentioned(reading.contradictions)}",
            )
        )
    if reading.ignored:
        words.append(("Ignored", _some(reading.ignored, "column")))
    return words + [("Note", printable(note, 300)) for note in participation.notes]


def preview_values(participation: Participation) -> dict[str, Any]:
    """Return the preview as plain values for JSON."""
    reading = asdict(participation.reading) if participation.reading else {}
    found = {name: reading.get(name) for name in ("format", "rounds", "clients", "ignored")}
    found["left_out"] = dict(reading.get("left_out", ()))
    found["order"] = reading.get("order")
    for name in ("duplicates", "contradictions"):
        odd = reading.get(name, {"count": 0, "first": ()})
        first = [{"round": label, "client": client} for label, client in odd["first"]]
        found[name] = {"count": odd["count"], "first": first}
    found["first_rounds"] = [
        {"round": label, "clients": members[:_NAMES], "of": len(members)}
        for label, members in islice(participation, _ROUNDS)
    ]
    return found


def _from(place: str) -> str:
    return f", from {place}" if place else ""


def _mentioned(mentions: Mentions) -> str:
    """Return the first clients and rounds as text."""
    named = [f"{printable(client, 24)} in round {printable(label, 24)}" for label, client in mentions.first]
    return ", ".join(named) + (", ..." if mentions.count > len(named) else "")


def _option(name: str, value: object) -> str:
    """Return an option as it is written on the command line."""
    values = value if isinstance(value, list) else [value]
    return name if value is True else " ".join(f"{name} {printable(one)}" for one in values)


def _some(names: "tuple[str, ...] | list[str]", noun: str = "client") -> str:
    """Return the number of names, and the first of them, as text."""
    if not names:
        return "nobody"
    shown = ", ".join(printable(name, 24) for name in names[:_NAMES])
    return f"{count(len(names), noun)}: {shown}{', ...' if len(names) > _NAMES else ''}"
