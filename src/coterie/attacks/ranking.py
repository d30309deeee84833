"""The AUC: how well scores rank examples of one kind above the others, at any threshold."""

import numpy as np

from coterie.cohorts.circles import Mask, Reals
from coterie.errors import InputError


def area_under_curve(scores: Reals, positives: Mask) -> float:
    """Return the AUC: the probability that a positive scores above another example (Mann and Whitney).

    Ties count one half, and a score that is not a number is below all others. 0.5 is guessing.
    """
    from scipy.stats import rankdata

    inside, outside = int(positives.sum()), int((~positives).sum())
    if not inside or not outside:
        raise InputError("the area under the curve needs positives and others, not examples of one kind only")
    ranks = rankdata(np.nan_to_num(scores, nan=-np.inf))
    return float((ranks[positives].sum() - inside * (inside + 1) / 2) / (inside * outside))
