import inspect

import pytest
from tests.support.cast import Cast, make_terms

from coterie.secagg import Server, Step, messages, steps
from coterie.secagg.prekeys import steps as prekey_steps


def test_the_documentation_shows_the_table() -> None:
    assert inspect.cleandoc(steps.draw()) in inspect.cleandoc(Server.__doc__ or "").replace("\n    ", "\n")


@pytest.mark.parametrize("active", [False, True])
def test_sessions_follow_the_table(active: bool) -> None:
    """Every message of a session is of the type that the table says, in its order."""
    cast = Cast(make_terms(5, active=active))
    played = []
    while cast.server.step is not Step.DONE:
        row = steps.ROWS[cast.server.step]
        played.append(row)
        replies = cast.replies()
        for reply in replies.values():
            messages.decode(reply, row.upload, "test", cast.terms.digest)
        cast.deliver(replies)
        cast.inbox = cast.server.close()
        assert bool(cast.inbox) == (row.download is not None)
        for message in cast.inbox.values():
            messages.decode(message, row.download or messages.Message, "test", cast.terms.digest)
    assert played == [row for row in steps.TABLE if active or not row.active_only]
    assert cast.server.view().aggregated == frozenset(range(5))


def test_every_step_but_the_end_is_in_the_table_once() -> None:
    assert [row.step for row in steps.TABLE] == [step for step in Step if step not in (Step.DONE, Step.CONTRIBUTE)]
    assert [row.step for row in prekey_steps.TABLE] == [Step.CONTRIBUTE, Step.CONFIRM, Step.REVEAL]
