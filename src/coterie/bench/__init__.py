"""The costs of secure aggregation here: measured on the real protocol, against the machine's limits and its peers.

:func:`measure` times one session, :func:`measure_flower` the same work on Flower's SecAgg+, and
:func:`compare` the sparse graph of CCESA against the complete graph. Every result is checked before its cost is
reported; ratios of numbers from one run mean something on any machine, milliseconds only on this one.
"""

from coterie.bench.machine import keystream_ratio
from coterie.bench.secagg import Measurement, SessionCosts, measure, measure_flower
from coterie.bench.topologies import Comparison, compare
from coterie.bench.workload import Workload, choose
from coterie.host import peak_rss_bytes

__all__ = [
    "Comparison",
    "Measurement",
    "SessionCosts",
    "Workload",
    "choose",
    "compare",
    "keystream_ratio",
    "measure",
    "measure_flower",
    "peak_rss_bytes",
]
