"""Federated learning whose secure aggregation stays secure, round after round.

There are five functions, each a complete task in one call. The packages offer the parts they are made of.

* :func:`~coterie.api.train` trains a torch model under secure aggregation with multi-round privacy,
* :func:`~coterie.api.aggregate` sums arrays without the server seeing any of them,
* :func:`~coterie.api.audit` says what the sums of past rounds reveal, from the log of any system,
* :func:`~coterie.api.plan` chooses the parameters of one session or of many rounds, before the first one,
* :func:`~coterie.runs.comparison.comparison.compare` compares runs with each other and with baselines.

Every error that is raised on purpose is in :mod:`coterie.errors`.
"""

from typing import TYPE_CHECKING

from coterie.lazy_names import lazy_getattr
from coterie.version import __version__

__all__ = [
    "AggregationResult",
    "AuditReport",
    "Comparison",
    "Plan",
    "PopulationPlan",
    "RunResult",
    "__version__",
    "aggregate",
    "audit",
    "compare",
    "plan",
    "train",
]

if TYPE_CHECKING:
    from coterie.api import AggregationResult, aggregate, audit, plan, train
    from coterie.auditing.findings import AuditReport
    from coterie.planning.population import PopulationPlan
    from coterie.planning.session import Plan
    from coterie.runs.comparison.comparison import Comparison, compare
    from coterie.runs.engine.run import RunResult
else:  # imported when they are first used, so that ``import coterie`` stays light; a type checker knows them all
    __getattr__ = lazy_getattr(
        __name__,
        {
            "AggregationResult": "coterie.api",
            "AuditReport": "coterie.auditing.findings",
            "Comparison": "coterie.runs.comparison.comparison",
            "Plan": "coterie.planning.session",
            "PopulationPlan": "coterie.planning.population",
            "RunResult": "coterie.runs.engine.run",
            "aggregate": "coterie.api",
            "audit": "coterie.api",
            "compare": "coterie.runs.comparison.comparison",
            "plan": "coterie.api",
            "train": "coterie.api",
        },
    )


def __dir__() -> list[str]:
    """List all public names, imported or not."""
    return __all__
