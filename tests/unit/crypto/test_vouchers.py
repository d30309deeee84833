import base64

import pytest
from cryptography.hazmat.primitives import serialization as s
from cryptography.hazmat.primitives.asymmetric import ec

from coterie.crypto.vouchers import read_public_keys
from coterie.errors import ConfigError


@pytest.fixture(scope="module")
def keys() -> list[bytes]:
    made = [ec.generate_private_key(ec.SECP384R1()).public_key() for _ in range(3)]
    return [key.public_bytes(s.Encoding.OpenSSH, s.PublicFormat.OpenSSH) for key in made]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_lines_that_are_empty_or_comments_are_skipped(keys: list[bytes], end: bytes) -> None:
    lines = [b"# all", b"  # and indented", *keys, b"", b" \t", b"#" + keys[0]]
    assert len(read_public_keys(end.join(lines))) == 3


@pytest.mark.parametrize("sign", [b"\r", b"\x0b", b"\x0c", b"\x1c", b"\x85"])
def test_nothing_but_a_newline_ends_a_comment(keys: list[bytes], sign: bytes) -> None:
    first, second, old = keys
    listed = read_public_keys(b"\n".join([first, b"# old" + sign + old, second]))
    assert listed == read_public_keys(first) + read_public_keys(second)


def test_a_key_with_a_compressed_point_is_refused() -> None:
    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    point = key.public_bytes(s.Encoding.X962, s.PublicFormat.CompressedPoint)
    parts = (b"ecdsa-sha2-nistp384", b"nistp384", point)
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    with pytest.raises(ConfigError, match="neither PEM nor OpenSSH"):
        read_public_keys(b"ecdsa-sha2-nistp384 " + base64.b64encode(blob))
