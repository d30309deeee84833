"""The steps of a two-trip session as data.

``confirm`` is left out if few clients are lost, and always against an honest-but-curious server.
"""

from coterie.secagg.prekeys import messages
from coterie.secagg.steps import Step, StepRow

TABLE = (
    StepRow(Step.CONTRIBUTE, messages.MaskedContribution, messages.SurvivorList),
    StepRow(Step.CONFIRM, messages.SurvivorSignature, messages.SurvivorProof, active_only=True),
    StepRow(Step.REVEAL, messages.OpenedShares, None),
)
ROWS = {row.step: row for row in TABLE}
