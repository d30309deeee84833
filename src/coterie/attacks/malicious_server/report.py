"""The report on a malicious server: the result of each lie with and without the rule against it."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from coterie.arithmetic.quantize import Quantizer
from coterie.arithmetic.ring import RingVector
from coterie.attacks.malicious_server.measure import MaliciousServer
from coterie.attacks.malicious_server.scenario import SIGNIFICANT, Attempt, LieResult, Picture, resemblance
from coterie.reports.findings import CardLine, Effect, Findings, Strip, Table
from coterie.reports.words import Level

READ_OFF = (
    " The input is the update of one step on one example, recovered exactly but for the last layer's biases; the "
    "example is read off it."
)
NOTHING = 0.5
"""The grey of an empty picture."""


def report(attack: MaliciousServer, results: Sequence[LieResult]) -> Findings:
    """Report on all lies."""
    quantizer, typical = attack.quantizer, attack.typical
    shape = typical.shape
    usual = _usual(results, quantizer, typical)
    safe = all(each.outcome is not Effect.NOT_ELIMINATED for each in results)
    return Findings(
        level=Level.SAFE if safe else Level.DANGER,
        headlines=[_headline(attack, results)],
        about=_setting(attack, quantizer, shape),
        numbers={"lies": {each.lie.name: _measures(each) for each in results}, "typical_resemblance": usual},
        tables=[_table(results, usual)],
        card=[_card_line(attack, each) for each in results],
        pictures=[_strip(each, quantizer, shape) for each in results if not each.impossible],
        remarks=tuple(_remarks(attack, results)),
    )


def draw(vector: RingVector | None, among: int, quantizer: Quantizer, shape: tuple[int, ...]) -> Picture:
    """Draw a vector, or the mean of a sum of several; grey if there is nothing."""
    if vector is None:
        return np.full(shape, NOTHING)
    values = quantizer.ring.lift(vector[1:]) * (quantizer.step / among)  # the entries after the weight
    return np.asarray(np.clip(values, 0, 1)).reshape(shape)


def _strip(result: LieResult, quantizer: Quantizer, shape: tuple[int, ...]) -> Strip:
    def pictured(attempt: Attempt) -> tuple[Picture, Picture]:
        if attempt.pictures is not None:
            planted, seen = attempt.pictures
            return planted, np.full(planted.shape, NOTHING) if seen is None else seen
        planted = draw(attempt.planted, 1, quantizer, shape)
        return planted, draw(attempt.recovered, attempt.among, quantizer, shape)

    without, against = ([pictured(attempt) for attempt in side] for side in (result.without, result.against))
    read = READ_OFF if result.without[0].pictures is not None else ""
    sent = "" if any(attempt.recovered is not None for attempt in result.against) else " Grey: nothing was obtained."
    among = max(attempt.among for attempt in result.against)
    blend = f" With the rule it has the sum of {among} clients, drawn as their mean." if among > 1 else ""
    return Strip(
        result.lie.title,
        [
            ("The victim's input", np.stack([planted for planted, _ in without])),
            ("Recovered without the rule", np.stack([seen for _, seen in without])),
            ("Recovered with the rule", np.stack([seen for _, seen in against])),
        ],
        f"The server {result.lie.action}. The rule: {result.lie.rule}.{read}{blend}{sent}",
    )


def _usual(results: Sequence[LieResult], quantizer: Quantizer, typical: Picture) -> float:
    """Return the resemblance of the typical picture and the victims' inputs."""
    planted = [attempt.planted for each in results for attempt in each.without if attempt.pictures is None]
    pictures = [draw(vector, 1, quantizer, typical.shape) for vector in planted]
    alike = [np.corrcoef(picture.ravel(), typical.ravel())[0, 1] for picture in pictures]
    return float(np.mean(alike)) if alike else 0.0


def _table(results: Sequence[LieResult], usual: float) -> Table:
    def varied(each: LieResult) -> str:
        worked = sum(one.baseline for one in each.varied)
        return f"{worked} / {each.broken} of {len(each.varied)}" if each.varied else "–"

    return Table.of(
        "What the server obtained",
        results,
        [
            ("lie", lambda each: each.lie.title),
            (
                "obtained without the rule",
                lambda each: "not possible" if each.impossible else f"{each.worked} of {len(each.without)}",
            ),
            ("with it", lambda each: f"{each.obtained} of {len(each.without)}"),
            ("resemblance", lambda each: f"{resemblance(each.against):.2f}"),
            ("p", lambda each: f"{each.chance:.2g}"),
            ("varied: without / with", varied),
        ],
        "Obtained: the victim's input, exact to the last bit. Resemblance: the correlation between the input and the "
        "best reconstruction from everything the server holds with the rule in place; p: how often random guesses are "
        f"as close. The mean of all pictures has a resemblance of {usual:.2f}. Varied: the same lie with messages "
        "altered, left out, exchanged and repeated at random, and requests repeated where they are refused.",
    )


def _headline(attack: MaliciousServer, results: Sequence[LieResult]) -> str:
    obtained = [each for each in results if each.outcome is Effect.NOT_ELIMINATED]
    worked = sum(each.worked > 0 for each in results)
    lies = "lie" if len(results) == 1 else "lies"
    if not worked:
        return (
            f"Nothing is shown: none of {len(results)} {lies} obtained an input here, even without the rule against it."
        )
    if not obtained:
        return (
            f"Without the rule against it, {worked} of {len(results)} {lies} obtained a client's input exactly; "
            "with all rules, none did."
        )
    names = ", ".join(each.lie.title.lower() for each in obtained)
    found = f"{len(obtained)} of {len(results)} {lies} obtained a client's input with all rules in place: {names}."
    return found if attack.active else f"{found} Honest-but-curious terms promise nothing against a server that lies."


def _setting(attack: MaliciousServer, quantizer: Quantizer, shape: tuple[int, ...]) -> str:
    circles = f"circles of {attack.privacy}" if attack.privacy > 1 else "no circles"
    mode = (
        "The terms are for an active server: clients sign their messages and verify each other's signatures."
        if attack.active
        else "The terms are honest-but-curious: clients trust the server to follow the protocol."
    )
    return (
        f"Sessions of up to {attack.clients} clients in {circles}, on the complete graph; {attack.colluders} of them "
        f"collude. {mode} An input is a picture of {attack.data}, {int(np.prod(shape))} numbers in a ring of "
        f"{quantizer.ring.bits} bits; each lie is tried on {attack.trials} victims. Clients, keys, shares and masks "
        "are those of real sessions. An input is recovered by subtracting from a masked input all keystreams whose "
        "seeds the server can compute."
    )


def _measures(result: LieResult) -> dict[str, Any]:
    return {
        "title": result.lie.title,
        "possible": not result.impossible,
        "trials": len(result.without),
        "without_rule": {"exact": result.worked, "resemblance": resemblance(result.without)},
        "with_rule": {"exact": result.obtained, "resemblance": resemblance(result.against), "p": result.chance},
        "clients_in_what_is_left": max(attempt.among for attempt in result.against),
        "refusals": list(result.refusals[:3]),
        "varied": {
            "tries": len(result.varied),
            "messages": sum(each.asked for each in result.varied),
            "exact_without_rule": sum(each.baseline for each in result.varied),
            "broken_with_rule": result.broken,
        },
        "outcome": result.outcome,
    }


def _card_line(attack: MaliciousServer, result: LieResult) -> CardLine:
    mode = "active" if attack.active else "honest"
    circles = f"T = {attack.privacy}" if attack.privacy > 1 else "no circles"
    against = f"{mode} mode, {circles}, {attack.colluders} of {attack.clients} collude"
    return CardLine(result.lie.title, against, result.outcome, _why(attack, result))


def _why(attack: MaliciousServer, result: LieResult) -> str:
    rule = result.lie.rule[0].upper() + result.lie.rule[1:]
    if result.impossible:
        return f"Not possible here: {result.impossible}."
    if result.outcome is Effect.NOT_ELIMINATED:
        if not attack.active:
            return "These terms promise nothing against a server that lies; active-server terms do."
        return "This must not happen: please report it with the command and its seed."
    if not result.worked:
        return "Fails here even without its rule, so nothing is shown: other rules or these settings prevent it."
    if result.outcome is Effect.REDUCED:
        among = max(attempt.among for attempt in result.against)
        return (
            f"{rule}. The server still obtains a sum over {among} clients, a whole circle, which the difference of two "
            "rounds may reveal as well."
        )
    return f"{rule}."


def _remarks(attack: MaliciousServer, results: Sequence[LieResult]) -> Iterator[str]:
    tries, asked = sum(len(each.varied) for each in results), sum(v.asked for each in results for v in each.varied)
    broken = sum(each.broken for each in results)
    if tries:
        judged = "by linear algebra over everything the server holds" if attack.active else "by the recovered vector"
        yield (
            f"Lies within a session were tried {tries} more times with all rules on, each varied at random, with "
            f"{asked:,} messages in all. {broken} of them obtained what they must not, judged {judged}."
        )
    yield (
        "A rule is switched off by replacing its function in this process while one lie is tried. The protocol itself "
        "has no such switch."
    )
    yield (
        "A lie counts as eliminated if no input was obtained, and random guesses are as close as the server's "
        f"reconstruction in more than {SIGNIFICANT:.1%} of cases."
    )
    yield (
        "Only the honest members of a circle protect each other. A server can always make a round fail by lying; then "
        "no one learns anything. A crafted model that is the same for every client is another attack, and comparing "
        "models does not detect it."
    )
