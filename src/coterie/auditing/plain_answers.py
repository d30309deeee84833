"""The answers to further questions in the words of the one-page summary, which is not only for engineers.

The summary speaks of participants, contributions and totals; the report of clients, updates and sums.
"""

from coterie.auditing.answers import Answers
from coterie.auditing.colluders import AnyColluders, NamedColluders
from coterie.auditing.forecast import Forecast
from coterie.auditing.what_if import WholeCircles
from coterie.reports.words import count, printable

_NAMED = 5  # participants named in a sentence
_NAME = 60  # characters shown of a name


def plain_answers(answers: Answers) -> list[tuple[str, str]]:
    """Return the answers as pairs of a title and a text."""
    found = []
    if answers.named:
        helpers = count(len(answers.named.names), "named participant")
        found.append((f"If {helpers} helped the server", _named(answers.named)))
    if answers.anyone:
        found.append((f"If any {count(answers.anyone.members, 'participant')} helped the server", _any(answers.anyone)))
    if answers.forecast:
        found.append(("If rounds go on as before", _forecast(answers.forecast)))
    if answers.circles:
        found.append((f"If only whole circles of {answers.circles.size} had been added up", _circles(answers.circles)))
    return found


def _named(colluders: NamedColluders) -> str:
    if colluders.strong_privacy is None:
        return "Nothing could be learned about the others: no total has another participant."
    if not colluders.exposed:
        if colluders.strong_privacy == 1:
            return "Nobody else could be singled out yet, but somebody took part in rounds like nobody else."
        return f"Everybody else would still be hidden in a group of {colluders.strong_privacy:,} or more."
    shown = ", ".join(printable(one.client, _NAME) for one in colluders.exposed[:_NAMED])
    more = ", ..." if len(colluders.exposed) > _NAMED else "."
    already = len(colluders.exposed) - colluders.by_collusion or "none"
    return (
        f"The contribution of {count(len(colluders.exposed), 'other participant')} could be computed ({already} "
        f"without this help): {shown}{more}"
    )


def _any(colluders: AnyColluders) -> str:
    if colluders.alone:
        return "The server needs no help: it can already compute the contribution of somebody who is exposed."
    return {
        True: "With the right helpers, the contribution of another participant could be computed.",
        False: "Whoever they are, no contribution of another participant could be computed.",
        None: "It could not be decided in time whether the contribution of another participant could be computed.",
    }[colluders.isolate]


def _forecast(forecast: Forecast) -> str:
    if forecast.first.since is not None and forecast.last.since is not None:
        return "Everybody who took part is exposed already."
    histories = count(forecast.histories, "simulated history", "simulated histories")
    return f"{forecast.words()} This is from {histories}, with the same participants, chosen at random."


def _circles(circles: WholeCircles) -> str:
    if circles.strong_privacy is None:
        return "Nothing would have been revealed: no circle was ever complete."
    exposed = count(len(circles.exposed), "participant") if circles.exposed else "nobody"
    return (
        f"Totals would separate no group of fewer than {count(circles.strong_privacy, 'participant')}, and {exposed} "
        f"would be exposed. {circles.rounds:,} of {count(circles.rounds_before, 'round')} would have had a total, with "
        f"{circles.share:.0%} of all participations. A system that chooses whole circles loses less."
    )
