"""Rounds as metrics in Prometheus' text format, in a file that a collector of text files reads.

    strategy = PrivateStrategy(FedAvg(), observer=PrometheusFile("/var/lib/metrics/coterie.prom"))

Copy this file into your app. It needs nothing but Python and Coterie.
"""

import os
from collections import defaultdict
from pathlib import Path

from coterie.deployment.events import RoundEvent, StepEvent

HELP = {
    "coterie_rounds_total": ("counter", "Rounds, by outcome."),
    "coterie_round_seconds": ("gauge", "Duration of the last round."),
    "coterie_round_selected": ("gauge", "Nodes selected for the last round."),
    "coterie_round_aggregated": ("gauge", "Nodes in the last sum; 0 if there was none."),
    "coterie_last_sum": ("gauge", "Number of the last sum in the ledger."),
    "coterie_departures_total": ("counter", "Nodes that left a round, by step."),
    "coterie_blamed_total": ("counter", "Nodes that are proven to have dealt or sent wrong shares."),
    "coterie_step_seconds_total": ("counter", "Time spent in each step."),
    "coterie_sent_bytes_total": ("counter", "Bytes of the protocol's messages sent to nodes, by step."),
    "coterie_received_bytes_total": ("counter", "Bytes of the protocol's messages received from nodes, by step."),
}


class PrometheusFile:
    """An observer that keeps a file of metrics up to date."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._values: defaultdict[tuple[str, str], float] = defaultdict(float)

    def __call__(self, event: StepEvent | RoundEvent) -> None:
        """Count an event, and replace the file."""
        values = self._values
        if isinstance(event, StepEvent):
            label = f'{{step="{event.step}"}}'
            values["coterie_departures_total", label] += len(event.left)
            values["coterie_step_seconds_total", label] += event.seconds
            values["coterie_sent_bytes_total", label] += event.sent
            values["coterie_received_bytes_total", label] += event.received
        else:
            values["coterie_rounds_total", f'{{outcome="{event.outcome}"}}'] += 1
            values["coterie_blamed_total", ""] += len(event.blamed)
            values["coterie_round_seconds", ""] = event.seconds
            values["coterie_round_selected", ""] = event.selected
            values["coterie_round_aggregated", ""] = event.aggregated
            values["coterie_last_sum", ""] = event.number
        self._write()

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        lines = []
        for name, (kind, words) in HELP.items():
            found = sorted((label, value) for (metric, label), value in self._values.items() if metric == name)
            if found:
                lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
                lines += [f"{name}{label} {value:.17g}" for label, value in found]
        return "\n".join(lines) + "\n"

    def _write(self) -> None:
        """Replace the file whole, so that a collector never reads a part of it."""
        draft = self._path.with_suffix(".draft")
        draft.write_text(self.text())
        os.replace(draft, self._path)
