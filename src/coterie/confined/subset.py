"""The subset S of an iteration, and the number of its members that must be honest.

All participants see the sum over S. If c participants collude, they learn the sum over the honest members of S (CGD,
Theorem 3). If there is only one honest member, this sum is its gradient. The paper draws S at random and has no rule
against that. This module has one, for the worst case that all colluders are in S.

Over many iterations it is not enough to look at one subset. A participant that refuses every step sends a constant
gradient, so sums over different subsets can be subtracted from each other. Then the smallest group that is always
summed whole matters, and S should be a union of fixed circles (:mod:`coterie.cohorts.circles`), or all participants.
"""

from coterie.errors import ConfigError, TooFewHonest

LEAST_HONEST = 2


def check_honest(size: int, colluders: int, circle: int | None = None) -> int:
    """Return the number of honest members that a sum over ``size`` members hides together; refuse fewer than 2.

    If S is a union of circles, ``circle`` is the size of the smallest one. All colluders may be in it, so T - c honest
    members remain. Without circles S must be the same in every iteration.
    """
    if size < 1 or colluders < 0 or (circle is not None and not 1 <= circle <= size):
        raise ConfigError(f"{size} members, {colluders} colluders and circles of {circle} do not fit together")
    together = size if circle is None else circle
    if together - colluders < LEAST_HONEST:
        group = "the subset" if circle is None else "a circle"
        raise TooFewHonest(
            f"{group} of {together} has {max(0, together - colluders)} honest members if {colluders} collude: "
            f"its sum hides nobody unless there are {LEAST_HONEST}"
        )
    return together - colluders
