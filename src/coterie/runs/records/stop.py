"""The decision to end a run before its last round."""

import msgspec


class Stop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an observer returns to end a run after the round that was just recorded.

    The run's folder keeps it, and a resumed run respects it.
    """

    reason: str
    """Why, as a sentence without its full stop: it is shown on the console, in the summary and on the page."""
    section: str = ""
    """The section of the settings that the decision depends on; a resumed run goes on if that section was changed."""
