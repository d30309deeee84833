from coterie.cli.options import TOPOLOGIES
from coterie.planning.session import SEARCHES


def test_the_help_lists_every_topology() -> None:
    assert set(TOPOLOGIES) == set(SEARCHES)
