import pytest
from tests.support.cast import make_terms

from coterie.errors import PeerProtocolError
from coterie.secagg import Server
from coterie.secagg.invitation import is_invitation, read_invitation
from coterie.secagg.messages import CHECKSUM_BYTES, checksum

TAGS = ["cc00", "cd0000", "ce00000000", "cf0000000000000000", "d000", "d10000", "d200000000", "d30000000000000000"]
"""Every way in which msgpack writes 0, but for the shortest."""


@pytest.mark.parametrize("tag", TAGS)
def test_only_recognised_invitations_are_read(tag: str) -> None:
    terms = make_terms(4)
    honest = next(iter(Server(terms).invite().values()))
    assert is_invitation(honest)
    assert read_invitation(honest) == terms
    body = honest[:1] + bytes.fromhex(tag) + honest[2:-CHECKSUM_BYTES]
    spelt = body + checksum(body)
    assert not is_invitation(spelt)
    with pytest.raises(PeerProtocolError, match="not an Invitation"):
        read_invitation(spelt)
