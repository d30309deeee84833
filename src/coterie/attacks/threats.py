"""The threat models of all attacks: who attacks, what the attacker sees and knows, and what it may do.

An attack uses only what its threat model grants. The models are in one module because the results of two attacks can be
compared only with regard to them. A model that depends on the settings of its attack is a function.
"""

from coterie.attacks.attack import Adversary

_CURIOUS_SERVER = "the server, honest but curious: it follows the protocol and keeps what it sees"

DEMO = Adversary(
    who=_CURIOUS_SERVER,
    sees="one securely aggregated sum in every round; never the update of a single client",
    knows="who took part in which round, the model, and the labels of the digits",
    may="compute; it follows the protocol",
)

DIFFERENCING = Adversary(
    who=_CURIOUS_SERVER,
    sees="the sum of each round's updates, as secure aggregation reveals it; never the update of a single client",
    knows="who was aggregated in which round",
    may="compute; it selects cohorts as the policy says, and sends nothing it should not",
)

FACES = Adversary(
    who="an eavesdropper on every client (or the server, which sees the same); and anyone who receives the model",
    sees="what each client sends in the last round: its model in plain averaging, a masked vector under SA and CCESA; "
    "and, under all three, the global model after that round",
    knows="the initial model, the model before that round, which class is which person, and the usual brightness and "
    "contrast of pictures",
    may="compute; it sends nothing",
)

IMPRINT = Adversary(
    who="the server, which chooses the model that clients train",
    sees="the mean update of a cohort of whole circles, as secure aggregation reveals it; never that of one client",
    knows="public examples of the same kind; no label",
    may="send any model; apart from that it follows the protocol",
)

INVERSION = Adversary(
    who="the server, honest but curious",
    sees="the mean update of a circle of T clients, exactly as differencing over rounds would isolate it; with T = 1, "
    "as under random selection, the client's own update",
    knows="the model that the update was computed from, that clients take one step over all of their pictures, how "
    "many pictures each has, and every label",
    may="compute; it changes neither the model nor who takes part",
)

MEMBERSHIP = Adversary(
    who="an eavesdropper on one client, or the server; both honest but curious",
    sees="the eavesdropper: the global models and one client's upload in the last round; the server: the global "
    "models, which are the sums",
    knows="the model, how it is trained, other data from the same source, and a list of candidates of which half are "
    "the client's; it trains reference models with and without each candidate",
    may="compute; it sends nothing",
)

ONE_SUM = Adversary(
    who="the server, honest but curious",
    sees="one sum of a cohort's updates, and nothing else",
    knows="two updates of which the client sent one, the model, how it is trained, and how the updates of other "
    "clients are distributed; not which clients they are",
    may="compute",
)

PROPERTY = Adversary(
    who=_CURIOUS_SERVER,
    sees="the sum of each round's updates, as secure aggregation reveals it, and the model it sent out",
    knows="who was aggregated in which round; data of the same kind as the clients', with the property and without; "
    "how clients train",
    may="compute, and train simulated clients",
)


def active_membership(malicious: int, participants: int, examples: int) -> Adversary:
    """Return the model of ``malicious`` among honest ``participants``; each asks about ``examples`` records."""
    return Adversary(
        who=f"{malicious} of {participants + malicious} participants, who collude; the others and the server, if there "
        "is one, are honest",
        sees="what every participant sees: in FedAvg and Ditto the global model after each round; in confined descent "
        "the sum of each round, as an eavesdropper does, and their own confined models",
        knows=f"{examples} records each with the true answers, half of which some honest participant trains on; the "
        "network and the step size; not who trains on what",
        may="send anything instead of their gradients, in every round; they cannot see or change messages of others",
    )


def disaggregation(period: int) -> Adversary:
    """Return the model of an adversary without the participation log, who has counts for each ``period`` of rounds."""
    return Adversary(
        who="anyone who sees the sums, honest but curious; the participation log is hidden from it",
        sees="the sum of each round's updates, and how many clients are in it",
        knows=f"how often each client took part in each period of {period} rounds, for example from telemetry; not in "
        "which rounds",
        may="compute",
    )


def malicious_server(colluders: int, clients: int) -> Adversary:
    """Return the model of a server that breaks the protocol, with ``colluders`` of the ``clients`` of a session."""
    helped = f", with {colluders} of {clients} clients that collude with it" if colluders else ", alone"
    return Adversary(
        who=f"the server of secure aggregation{helped}",
        sees="every message of every client: keys, sealed shares, masked inputs, what is signed and revealed",
        knows="the protocol and its terms, and all secrets of the colluders",
        may="send any client anything: other keys, shares, survivors, terms or models, and repeated requests. It "
        "cannot break ciphers or forge signatures",
    )


def saved_sums(log: str, sums: str) -> Adversary:
    """Return the model of an adversary that has the server's records: a participation log, and the saved sums."""
    return Adversary(
        who="the server, honest but curious, or anyone who obtained its records",
        sees=f"the mean update of each round, in {sums}",
        knows=f"who was aggregated in which round, from {log}",
        may="compute",
    )
