"""The table of attacks, from which ``coterie attack`` makes its commands.

A new attack is a package with its settings, ``measure`` and ``report`` (:mod:`coterie.attacks.attack`), and its row
here. Reading the table imports no attack.
"""

from pkgutil import resolve_name
from typing import Any, NamedTuple

from coterie.settings import Settings


class AttackRow(NamedTuple):
    """The names of the two classes of an attack; the second is imported only when the attack runs."""

    package: str
    settings: str
    """A subclass of :class:`~coterie.settings.Settings` in the package's module ``settings``, which imports quickly."""
    attack: str
    """An :class:`~coterie.attacks.attack.Attack` with the same fields, as ``module:class`` of the package."""

    def load_settings(self) -> type[Settings]:
        """Import the settings class."""
        found: type[Settings] = resolve_name(f"{self.package}.settings:{self.settings}")
        return found

    def make(self, settings: Settings) -> Any:  # noqa: ANN401 - an Attack, whose module is not imported here
        """Import the attack and return it with its settings."""
        return resolve_name(f"{self.package}.{self.attack}")(**vars(settings))


ATTACKS = {
    "demo": AttackRow("coterie.attacks.demo", "DemoSettings", "measure:AttackDemo"),
    "active-membership": AttackRow(
        "coterie.attacks.active_membership", "ActiveMembershipSettings", "measure:ActiveMembership"
    ),
    "differencing": AttackRow("coterie.attacks.differencing", "DifferencingSettings", "measure:Differencing"),
    "disaggregation": AttackRow("coterie.attacks.disaggregation", "DisaggregationSettings", "measure:Disaggregation"),
    "faces": AttackRow("coterie.attacks.faces", "FacesSettings", "measure:Faces"),
    "imprint": AttackRow("coterie.attacks.imprint", "ImprintSettings", "measure:Imprint"),
    "inversion": AttackRow("coterie.attacks.inversion", "InversionSettings", "measure:Inversion"),
    "malicious-server": AttackRow(
        "coterie.attacks.malicious_server", "MaliciousServerSettings", "measure:MaliciousServer"
    ),
    "membership": AttackRow("coterie.attacks.membership", "MembershipSettings", "measure:PassiveMembership"),
    "one-sum": AttackRow("coterie.attacks.one_sum", "OneSumSettings", "measure:OneSum"),
    "property": AttackRow("coterie.attacks.property", "PropertySettings", "measure:PropertyInference"),
}
"""Every attack by its name on the command line."""
