"""Rounds over cohorts, in which clients' contributions become one mean: securely or plainly.

Both ways select with the same policy, lose the same clients at the same moments and aggregate whole circles only, so
that they differ in protection and rounding and in nothing else. Only where so many shares are lost that masks cannot
be removed does a secure round fail that would succeed without masks.
"""

from coterie.errors import LocalProtocolError
from coterie.runs.build import BuiltRun
from coterie.runs.local_updates import LocalUpdates
from coterie.runs.plain import Plain
from coterie.runs.played import Aggregation
from coterie.runs.secure import Secure
from coterie.runs.workplace import Workplace, noise_entropy, open_roster
from coterie.transports.rounds import Rounds


def cohort_rounds(built: BuiltRun, place: Workplace) -> Aggregation:
    """Return rounds with one sum each, of what the strategy's clients contribute."""
    config, cohorts = built.config, built.cohorts
    if cohorts is None:
        raise LocalProtocolError("there are no cohorts where nothing is aggregated")
    roster, identities = open_roster(config, tuple(built.federation.parts), cohorts, place.folder)
    secret = place.folder.secret()
    bench = LocalUpdates(built.strategy, place.trainer)
    if place.ledger is None:
        return Plain(roster, cohorts.policy, bench, config.aggregation.clip, config.cohort.minimum, place.frequencies)
    (protection,) = cohorts.protections
    rounds = Rounds(
        roster,
        cohorts.policy,
        place.ledger,
        protection.session,
        identities=identities or None,
        workers=config.aggregation.threads if config.aggregation.threads > 0 else None,
        frequencies=place.frequencies,
    )
    return Secure(
        rounds,
        bench,
        protection.codec,
        protection.layout,
        config.seed,
        lambda number, name: noise_entropy(secret, number, name),
        place.observe,
    )
