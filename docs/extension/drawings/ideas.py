"""Drawings of the ideas: one secure sum, many sums, circles, a lying server, confined descent, and other ways."""

from docs.extension.drawings.canvas import Canvas

from coterie.auditing.auditor import audit
from coterie.cohorts.participation import Participation


def what_t_means() -> Canvas:
    """Draw two rounds without circles, whose difference is one client, and with circles, whose difference never is."""
    canvas = Canvas(
        720,
        350,
        "Two rounds of secure sums. With random cohorts the sums of Ada, Ben, Cy and of Ada, Ben differ by Cy alone. "
        "With circles of two, sums differ by a whole circle.",
    )
    names = ["Ada", "Ben", "Cy", "Dee"]
    for left, heading, rounds, tones, verdict, tone in (
        (10, "Random cohorts", [(0, 1, 2), (0, 1)], ["one"] * 4, "round 1 − round 2 = Cy, alone", "bad"),
        (
            375,
            "Circles of 2",
            [(0, 1, 2, 3), (0, 1)],
            ["one", "one", "two", "two"],
            "round 1 − round 2 = Cy + Dee",
            "one",
        ),
    ):
        canvas.box(left, 8, 335, 334, "plain")
        canvas.text(left + 167, 36, heading, "mid big")
        for number, cohort in enumerate(rounds):
            top = 52 + 95 * number
            canvas.text(left + 12, top + 36, f"round {number + 1}", "small")
            for place, name in enumerate(names):
                x = left + 104 + 60 * place
                inside = place in cohort
                canvas.person(x, top + 30, tones[place] if inside else "off", name)
            if left > 300:
                for start, kind in ((0, "one"), (2, "two")):
                    if start in cohort:
                        canvas.ring(left + 76 + 60 * start, top + 1, 116, 78, kind)
        canvas.box(left + 16, 248, 303, 40, tone)
        canvas.text(left + 167, 273, verdict, "mid strong")
        t = "T = 1: Cy's update is known exactly" if tone == "bad" else "T = 2: nobody is ever alone"
        canvas.text(left + 167, 318, t, f"mid strong {tone}")
    return canvas


def one_sum() -> Canvas:
    """Draw three clients with masks that cancel in the sum."""
    canvas = Canvas(
        720,
        380,
        "Three clients add pairwise masks to their numbers. The server sees masked numbers, whose sum has no mask.",
    )
    values, masks = (3, 5, 1), ("+ r + s", "− r + t", "− s − t")
    shown = ("3 + r + s", "5 − r + t", "1 − s − t")
    for place, name in enumerate(("Ada", "Ben", "Cy")):
        x = 130 + 230 * place
        canvas.person(x, 38, ("one", "two", "three")[place], f"{name} has {values[place]}")
        canvas.label(x - 75, 105, 150, f"{values[place]} {masks[place]}", ("one", "two", "three")[place])
        canvas.arrow(x, 140, 360 + (place - 1) * 60, 205, ("one", "two", "three")[place])
    canvas.arrow(165, 35, 325, 35, "plain", both=True)
    canvas.text(245, 26, "agree on r", "mid small")
    canvas.arrow(395, 35, 555, 35, "plain", both=True)
    canvas.text(475, 26, "agree on t", "mid small")
    canvas.text(360, 94, "Ada and Cy agree on s", "mid small")
    canvas.server(360, 240, "server")
    canvas.text(48, 222, "It sees three numbers", "small")
    canvas.text(48, 240, "that look random.", "small")
    canvas.box(110, 305, 500, 62, "plain")
    canvas.text(360, 330, " + ".join(f"({number})" for number in shown) + "  =  9", "mid mono")
    canvas.text(360, 354, "Every mask is there once with + and once with −: the sum is exact.", "mid small")
    return canvas


HISTORY = [[0, 1, 0, 1, 0, 0], [1, 0, 1, 1, 0, 0], [0, 1, 0, 1, 1, 1], [1, 1, 0, 0, 0, 1], [0, 0, 1, 0, 1, 1]]
"""Six clients and five rounds of cohorts drawn at random."""


def many_sums() -> Canvas:
    """Draw a participation matrix, and the combination of rounds that the audit finds in it."""
    clients = ["Ada", "Ben", "Cy", "Dee", "Eva", "Finn"]
    report = audit(Participation.from_matrix(HISTORY, clients))
    found = report.exposed[0]
    coefficients = {int(label): int(value) for label, value in found.witness.items()}
    victim = clients.index(found.client)
    canvas = Canvas(
        560,
        326,
        f"A participation matrix of five rounds and six clients. A combination of rounds equals {found.client} alone.",
    )
    for column, name in enumerate(clients):
        canvas.text(130 + 58 * column, 34, name, f"mid{' strong bad' if column == victim else ''}")
    for row, cohort in enumerate(HISTORY):
        top = 50 + 38 * row
        used = coefficients.get(row + 1, 0)
        canvas.text(80, top + 20, f"round {row + 1}", "end" + (" strong" if used else " small"))
        for column, inside in enumerate(cohort):
            tone = ("one" if used else "plain") if inside else "off"
            canvas.box(106 + 58 * column, top, 48, 28, tone, dash=not inside)
        if used:
            canvas.text(478, top + 20, "add" if used > 0 else "subtract", "strong one")
    terms = " ".join(f"{'+' if value > 0 else '−'} round {label}" for label, value in coefficients.items())
    canvas.box(100, 252, 356, 60, "bad")
    canvas.text(278, 277, terms.removeprefix("+ "), "mid mono")
    canvas.text(278, 301, f"leaves {found.client}, and nobody else", "mid strong")
    return canvas


def circles() -> Canvas:
    """Draw a round in which a member of a circle drops out, and the circle is left out of the sum."""
    canvas = Canvas(
        720,
        300,
        "Three circles of three clients are invited. One client drops out, and its circle is excluded from the sum.",
    )
    names = [("Ada", "Ben", "Cy"), ("Dee", "Eva", "Finn"), ("Gil", "Hal", "Ivy")]
    for number, members in enumerate(names):
        left = 14 + 236 * number
        tone = ("one", "off", "two")[number]
        canvas.ring(left, 20, 220, 96, tone if tone != "off" else "plain", dash=tone == "off")
        for place, name in enumerate(members):
            canvas.person(left + 50 + 60 * place, 58, tone, name)
    canvas.cross(14 + 236 + 110, 56, 14)
    canvas.text(360, 140, "Eva drops out", "mid strong bad")
    canvas.text(360, 160, "Dee and Finn are excluded with her:", "mid small")
    canvas.text(360, 178, "their masks are never opened", "mid small")
    canvas.arrow(124, 122, 250, 232, "one")
    canvas.arrow(596, 122, 470, 232, "two")
    canvas.box(210, 236, 300, 46, "plain")
    canvas.text(360, 264, "sum of two whole circles", "mid strong")
    return canvas


def lying_server() -> Canvas:
    """Draw a server that tells two stories about who survived, and the signatures that stop it."""
    canvas = Canvas(
        720,
        400,
        "A lying server tells one client that Ben survived and another that he dropped out, and unmasks him. With "
        "signed survivor lists, no two lists reach a quorum.",
    )
    for left, heading, tone in ((10, "Without signatures", "bad"), (375, "With signatures", "one")):
        canvas.box(left, 8, 335, 384, "plain")
        canvas.text(left + 167, 36, heading, "mid big")
        canvas.server(left + 167, 92, "server", "bad")
        for place, (name, told) in enumerate((("Ada", "Ben is here"), ("Cy", "Ben is gone"))):
            x = left + 75 + 185 * place
            canvas.arrow(left + 167 + (-26 if place == 0 else 26), 110, x, 176, "bad")
            canvas.text(x + (-8 if place == 0 else 8), 138, told, "mid small")
            canvas.person(x, 204, ("one", "two")[place], name)
        canvas.box(left + 16, 262, 303, 116, tone)
    for line, words in enumerate(("Ada opens a share of Ben's own mask.", "Cy opens a share of Ben's pair masks.")):
        canvas.text(177, 290 + 22 * line, words)
    canvas.text(177, 354, "Together they unmask Ben.", "mid strong bad")
    lines = (
        "Ada and Cy sign what they were told.",
        "Each waits for a quorum of signatures",
        "on one and the same list.",
    )
    for line, words in enumerate(lines):
        canvas.text(542, 290 + 22 * line, words)
    canvas.text(542, 364, "Two lists cannot both have one.", "mid strong one")
    return canvas


def confined() -> Canvas:
    """Draw participants that start apart and move alike, and the public displacement."""
    canvas = Canvas(
        720,
        340,
        "Three participants start at private points and move by the same steps. The sum of the steps is a model too.",
    )
    steps = [(62, -18), (58, 26), (56, -34), (54, 8)]
    starts = [(90, 95, "one", "Ada's model"), (130, 165, "two", "Ben's model"), (70, 225, "three", "Cy's model")]
    for x, y, tone, name in starts:
        canvas.add(f'<circle cx="{x}" cy="{y}" r="5" class="{tone} solid"/>')
        for dx, dy in steps:
            canvas.arrow(x, y, x + dx, y + dy, tone)
            x, y = x + dx, y + dy
        canvas.text(x + 14, y + 5, name, "strong " + tone)
    canvas.text(96, 40, "private starts", "mid small")
    x, y = 150, 300
    canvas.add(f'<circle cx="{x}" cy="{y}" r="5" class="bad solid"/>')
    for dx, dy in steps:
        canvas.arrow(x, y, x + dx, y + dy, "bad", dash=True)
        x, y = x + dx, y + dy
    canvas.text(x + 14, y + 5, "public model: the sums, added up", "strong bad")
    canvas.text(x + 14, y + 25, "whoever sees the sums has it", "small")
    canvas.box(456, 20, 256, 70, "plain")
    canvas.text(584, 48, "The steps are the same for all:", "mid small")
    canvas.text(584, 70, "the mean of everybody's gradients.", "mid small")
    return canvas


def ways() -> Canvas:
    """Draw where trust is placed by masks, homomorphic encryption, several servers and trusted hardware."""
    canvas = Canvas(
        720, 380, "Four ways to add without seeing: masks, homomorphic encryption, several servers, trusted hardware."
    )
    panels = (
        ("Masks", "one", "Coterie", "clients hold the secrets"),
        ("Homomorphic encryption", "two", "not here", "somebody holds the key"),
        ("Several servers (MPC)", "three", "in confined descent, between peers", "servers must not collude"),
        ("Trusted hardware (TEE)", "bad", "not here", "the maker is trusted"),
    )
    for number, (heading, tone, where, trust) in enumerate(panels):
        left, top = 10 + 355 * (number % 2), 8 + 186 * (number // 2)
        canvas.box(left, top, 345, 176, "plain")
        canvas.text(left + 172, top + 28, heading, "mid strong")
        for place in range(3):
            canvas.person(left + 46 + 50 * place, top + 68, tone)
        servers = 3 if number == 2 else 1
        for place in range(servers):
            x = left + (262 if servers == 1 else 214 + 48 * place)
            canvas.server(x, top + 68, "", "bad" if number == 3 else "plain")
        canvas.arrow(left + 168, top + 66, left + (188 if servers > 1 else 232), top + 66, tone)
        canvas.text(left + 172, top + 128, trust, "mid")
        canvas.text(left + 172, top + 154, where, f"mid small {tone}")
    return canvas
