"""A confined descent over the rounds of a strategy: each round sends its model, and the models that nodes missed."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

from flwr.app import RecordDict

from coterie.deployment.descent import Descent
from coterie.deployment.engine import TRAIN, Assignment, kind_of
from coterie.deployment.first_use import encode_configuration, task_name
from coterie.deployment.form import Mean
from coterie.deployment.reasons import BEHIND
from coterie.deployment.recipe import ConfinedRecipe
from coterie.rounds import RoundResult
from coterie.transports.flower.confined import with_displacement
from coterie.transports.flower.records import configuration_of, model_of, name_of


class DescentRounds:
    """Adds a descent's models to the work of a round, and records which clients have judged them."""

    def __init__(self, descent: Descent, recipe: ConfinedRecipe) -> None:
        self._descent, self._recipe = descent, recipe

    def prepare(self, assignment: Assignment, records: RecordDict) -> Assignment:
        """Return an assignment with these records, to which the models are added once the clients are known."""
        return replace(assignment, complete=partial(self._complete, assignment, records))

    def _complete(self, assignment: Assignment, records: RecordDict, present: Collection[str]) -> Assignment:
        trains = kind_of(assignment.function) == TRAIN
        if trains:
            self._recipe.confinement.check_bound(model_of(records))
            configuration = encode_configuration(configuration_of({}, records, self._recipe.varying))
            self._descent.note_task(task_name(assignment.function), configuration)
        shown = self._descent.show(model_of(records), present) if trains else self._descent.place()
        together = with_displacement(records, shown)
        return replace(assignment, content=name_of(together), records=together, complete=None)

    def note(self, result: RoundResult[Mean], reasons: Mapping[str, str]) -> None:
        """Record after a round which clients have judged its models, and which had missed some."""
        self._descent.note_judged(result.revealed)
        self._descent.note_behind(client for client, reason in reasons.items() if reason == BEHIND)
