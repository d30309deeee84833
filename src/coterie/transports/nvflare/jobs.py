"""Job descriptions of NVFlare, which bring an app's code to the sites."""

from typing import Any

_PACKAGE = "coterie"


def leave_out_coterie(job: Any) -> None:  # noqa: ANN401 - NVFlare has no types
    """Leave Coterie out of a job. Every site has it installed, and a copy in the job would replace it."""
    packages = list(job.job.app_packages)
    if _PACKAGE not in packages:
        job.set_app_packages([*packages, _PACKAGE])
