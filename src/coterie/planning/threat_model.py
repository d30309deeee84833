"""The threat model of a planned deployment in plain words: who may attack, what holds, what does not, and why.

It promises no more than SECURITY.md does, for the numbers of one plan.
"""

import math
from collections.abc import Iterator

from coterie.graphs.table import is_complete
from coterie.planning.deployment import DeploymentPlan
from coterie.reports.html import render
from coterie.reports.words import count
from coterie.secagg.protocols import SessionProtocol


def threat_model_page(plan: DeploymentPlan) -> str:
    """Return the page, which is self-contained and made for printing."""
    return render(
        "coterie.planning",
        "threat_model.html.j2",
        {},
        holds=plan.holds,
        verdict=verdict(plan),
        sections=(
            ("Who may attack", tuple(attackers(plan))),
            ("What holds", tuple(promises(plan))),
            ("What does not hold", tuple(limits(plan))),
            ("What it assumes", tuple(assumptions(plan))),
        ),
        numbers=tuple(numbers(plan)),
        words=WORDS,
    )


WORDS = (
    ("Client", "A participant with data of its own: a phone, a hospital, a company. Its data does not leave it."),
    ("Server", "The machine that organises the training. It relays messages and computes the common model."),
    ("Update", "The numbers that a client computes from its data in a round. It sends them masked: they look random."),
    ("Circle", "A fixed group of clients. All of its members are in a sum, or none is."),
    ("T", "The size of the smallest circle: the number of clients that are summed together or not at all."),
    ("Colluder", "A client that tells the server everything it knows."),
    (
        "Epsilon and delta",
        "They bound how much more likely any conclusion about a client becomes because its updates were in the sums. "
        "Smaller is better. Delta is the probability with which the bound may fail.",
    ),
)
"""The words of the page, explained."""


def verdict(plan: DeploymentPlan) -> str:
    """Return the promise in one or two sentences."""
    choice = plan.choice
    if not plan.holds:
        return (
            "This plan does not keep every client hidden over many rounds. The page says what holds and what does not."
        )
    others = f"at least {count(choice.honest - 1, 'other honest client')}"
    return (
        "By adding and subtracting the sums of all rounds, the server cannot separate the update of an honest client "
        f"from those of {others}{_chance(plan.session.guarantee.privacy_failure_log2)}. No number of rounds changes "
        "that, as long as the assumptions below hold. What the sums say about such a group together is "
        f"{'not bounded' if plan.epsilon is None else 'bounded by the noise alone'}."
    )


def attackers(plan: DeploymentPlan) -> Iterator[str]:
    """Yield the attackers that the plan considers."""
    if plan.population.active:
        yield (
            "The server. It may send any message to any client, choose which clients take part, and claim that "
            "clients have dropped out."
        )
    else:
        yield (
            "The server. It follows the rules, stores everything that it sees, and tries to learn from it. This plan "
            "does not cover a server that breaks the rules."
        )
    if plan.session.colluders:
        deeds = "sign and send all that it asks for" if plan.population.active else "follow the rules otherwise"
        yield (
            f"Clients that help the server, up to {100 * plan.population.collusion:.3g}% of all "
            f"{plan.population.population:,}. They tell it all they know and {deeds}. The plan counts "
            f"{plan.session.colluders:,} in a round and {plan.choice.colluders:,} in a circle."
        )
    else:
        yield "The plan assumes that no client helps the server. It does not cover a client that does."


def promises(plan: DeploymentPlan) -> Iterator[str]:
    """Yield what holds."""
    session, choice = plan.session, plan.choice
    if session.cut:
        yield (
            "In each round the server learns sums of parts of the clients, each with at least two honest ones, and "
            "nothing else about their updates."
        )
    elif plan.population.active and plan.protocols.protocol is SessionProtocol.TWO_TRIPS:
        yield (
            "In each round the server learns one sum over whole circles, with at least two honest clients in it, and "
            "nothing else about their updates."
        )
    else:
        yield (
            "In each round the server learns the sum of the clients that are aggregated, and nothing else about their "
            f"updates{_chance(session.guarantee.privacy_failure_log2)}."
        )
    if plan.holds:
        yield (
            f"Over all rounds T = {choice.privacy:,}: every combination of all the sums is about groups of at "
            f"least {choice.privacy:,} clients, of which at least {choice.honest:,} are honest"
            f"{_chance(session.guarantee.privacy_failure_log2)}."
        )
    if plan.epsilon is not None:
        yield (
            f"The sums of all {count(plan.rounds, 'round')} together are differentially private for each client with "
            f"epsilon = {plan.epsilon:g} and delta = {plan.delta:g}, because every client adds noise."
        )


def limits(plan: DeploymentPlan) -> Iterator[str]:
    """Yield what does not hold."""
    session, choice = plan.session, plan.choice
    if session.cut:
        yield (
            "T does not hold. A server that lies can make chosen clients drop out, learn sums of parts of a round, and "
            "subtract those of several rounds from each other."
        )
    elif choice.privacy == 1:
        yield "Nothing is promised over several rounds: sums over different clients can be subtracted from each other."
    elif not choice.protects:
        yield (
            f"A circle of {choice.privacy:,} may have {choice.colluders:,} colluders. Then it may have only one honest "
            "client, and the updates of that client are known."
        )
    if plan.epsilon is None:
        yield (
            "There is no noise. What the sums of all rounds say about the members of a circle together is not bounded, "
            "and no epsilon is promised. Where clients or their examples count differently from round to round, as "
            "with a learning rate that changes or examples in a new order, sums of simple models have been enough to "
            "compute the data of both members of a circle of two."
        )
    else:
        yield "Epsilon does not cover other published data, such as scores measured on the clients' data."
    bounded = "; only the noise bounds that" if plan.epsilon is not None else ""
    yield (
        "Circles hide which client a contribution is from, but not the content of the sum. With a model that the "
        f"server crafted, a sum can contain readable examples{bounded}."
    )
    yield (
        "Some things are not hidden: who takes part and when, how large the model is, how many clients drop out, and "
        "the sizes of messages."
    )
    yield (
        "A client can send a wrong update and spoil the result. The server can end any round, or leave clients out. "
        "Whoever controls the network can cut clients off."
    )
    yield (
        "The machines of the clients themselves are not protected: anyone who reads a client's memory, its disk or its "
        "backup can learn its secrets. Nothing was verified to be free of side channels."
    )
    yield "The cryptography does not withstand a quantum computer: sessions recorded today could be opened by one."
    yield "The software has not been audited by a third party."


def assumptions(plan: DeploymentPlan) -> Iterator[str]:
    """Yield the assumptions of the page."""
    session = plan.session
    if session.colluders and plan.population.active:
        yield (
            f"No more than {session.colluders:,} of all {plan.population.population:,} clients help the server. A "
            "server that lies chooses who takes part, so all of them may be in one round and one circle."
        )
    elif session.colluders:
        yield (
            f"No more than {100 * plan.population.collusion:.3g}% of all clients help the server. Circles are "
            "drawn at random and colluders are there no more often than others. Then a round or a circle has "
            "more of them than the plan counts only with the small probability that it was made for."
        )
    if plan.population.active:
        yield (
            "Every client knows the identity keys of the others from a list that the server did not choose, and each "
            "client's operator sets the limits below which it refuses to take part."
        )
    if not is_complete(session.guarantee.topology, session.clients):
        yield "Who drops out does not depend on the graph of clients that share secrets."
    if plan.protocols.protocol is SessionProtocol.TWO_TRIPS and plan.population.active:
        yield "Keys that clients leave at the server in advance, and stored states of sessions, have not leaked."
    yield (
        "X25519, Ed25519, AES, HKDF and SHA-256 have their assumed strength, and the operating systems of "
        "honest clients give unpredictable random numbers."
    )
    yield "Honest clients run the software unchanged, keep their memory of past rounds, and erase secrets in time."
    yield "Messages are sent over TLS. Without it, anyone who can alter them is as strong as a server that lies."
    yield "The way to make an update and its weight from the data never changes, and the server does not choose it."
    if plan.epsilon is not None:
        yield (
            "Honest clients clip their updates and add their noise. Settings that are chosen before training, and the "
            "selection of clients, do not depend on private data."
        )


def numbers(plan: DeploymentPlan) -> Iterator[tuple[str, str]]:
    """Return the numbers of the plan that the page is about."""
    rows, choice, session = plan.population, plan.choice, plan.session
    yield "Clients", f"{rows.population:,}"
    yield "Clients in a round", f"up to {choice.most_clients:,}"
    yield "Rounds", f"{plan.rounds:,}"
    yield "Size of a circle, T", f"{choice.privacy:,} or more"
    yield "Colluders in a circle, at most", f"{choice.colluders:,}"
    yield "Honest clients left in a circle, at least", f"{choice.honest:,}"
    yield "Who shares secrets", session.graph_title
    yield "Shares that open a secret", f"{plan.threshold:,}"
    yield "Fewest clients in a sum", f"{session.minimum:,}"
    yield "Numbers in an update", f"{session.length:,}"
    if plan.epsilon is not None:
        yield "Epsilon, delta", f"{plan.epsilon:g}, {plan.delta:g}"


def _chance(log2: float) -> str:
    """Return the probability of a leak, if there is one, rounded up."""
    if log2 == -math.inf:
        return ""
    return f", but for a probability of at most 2^{math.ceil(log2)} in a round"
