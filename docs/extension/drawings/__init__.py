"""The drawings of the site, in one table. ``python -m docs.extension.drawings`` writes the one that README.md shows."""

from collections.abc import Callable

from docs.extension.drawings import ideas, tables
from docs.extension.drawings.canvas import Canvas

DRAWINGS: dict[str, Callable[[], Canvas]] = {
    "what-t-means": ideas.what_t_means,
    "one-sum": ideas.one_sum,
    "many-sums": ideas.many_sums,
    "circles": ideas.circles,
    "lying-server": ideas.lying_server,
    "confined": ideas.confined,
    "ways": ideas.ways,
    "layers": tables.layers,
    "papers-protocol": tables.papers_protocol,
    "papers-states": tables.papers_states,
    "two-trips": tables.two_trips,
    "two-trips-states": tables.two_trips_states,
}
"""Every drawing by its name."""

README_DRAWING = "what-t-means"
