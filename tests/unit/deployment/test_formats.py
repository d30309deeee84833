"""Formats on disk and on the wire: the same bytes as in the version that had this code in its Flower package."""

import hashlib

import msgspec

from coterie.cohorts.roster import Client
from coterie.deployment import credentials
from coterie.deployment.engine import Task
from coterie.deployment.first_use import encode_configuration
from coterie.deployment.form import Form, content_digest
from coterie.deployment.node import run_config_digest
from coterie.deployment.recipe import Metric, RosterRecipe
from coterie.deployment.sessions import Parked

RECIPE = bytes.fromhex(
    "9a01ac6e756d2d6578616d706c6573cd271018cb3ff0000000000000cb412e8480000000009392ad2a72756e6e696e675f6d65616ecb412e84"
    "800000000092ac2a72756e6e696e675f766172cb412e84800000000092b42a6e756d5f626174636865735f747261636b6564cb412e84800000"
    "00009193a46c6f7373cb0000000000000000cb40240000000000009091a26c72"
)
OBJECT = "fcc1638ca52886653b19f3c242b9c21dcd04a55e0eae462acbb2144ab5b8e2ac"
ANN = Client("ann", bytes(range(32)))


def test_a_recipe_has_the_bytes_of_earlier_versions() -> None:
    recipe = RosterRecipe(train_metrics=(Metric("loss", 0, 10),), varying=("lr",))
    assert recipe.to_bytes() == RECIPE
    assert RosterRecipe.from_bytes(RECIPE) == recipe


def test_a_stored_session_can_be_read() -> None:
    stored = bytes.fromhex("93c40772657175657374c4057265706c79c4057374617465")
    assert msgspec.msgpack.decode(stored, type=Parked) == Parked(b"request", b"reply", b"state")


def test_an_introduction_has_the_bytes_of_earlier_versions() -> None:
    sent = bytes.fromhex("97a3616e6ec40169c40170c40172c4016492c4016bc40173c40178")
    voucher = credentials.Voucher(b"k", b"s")
    said = credentials.Introduction("ann", b"i", b"p", b"r", b"d", voucher, b"x")
    assert said.to_bytes() == sent
    assert msgspec.msgpack.decode(sent, type=credentials.Introduction) == said
    stocked = msgspec.structs.replace(said, prekeys=b"offer")
    assert msgspec.msgpack.decode(stocked.to_bytes(), type=credentials.Introduction) == stocked


def test_nodes_sign_the_bytes_of_earlier_versions() -> None:
    end = "c403616e6ec420000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
    begin = "b0636f74657269652f7365636167672f32"
    assert credentials._hello(ANN, 7, 9).hex() == f"96{begin}ac666c6f7765722068656c6c6f{end}0709"
    assert credentials._enrolment(ANN).hex() == f"94{begin}b0666c6f77657220656e726f6c6d656e74{end}"


def test_the_digests_of_content_and_configuration_are_those_of_earlier_versions() -> None:
    name = content_digest(OBJECT.encode(), Form(RosterRecipe.from_bytes(RECIPE), 4), b"config", Task(7, "train", "3"))
    assert name.hex() == "aec8feadc8b65f1a72bf619e55fa2e7a87c5ea393f1bce2f68d9a630b897ec80"
    digest = run_config_digest({"lr": 0.1, "epochs": 1})
    assert digest.hex() == "2a824c877f4ed6d175c340f966d9852bc59863521db8bb1be2296f0122377909"


def test_a_stored_configuration_has_the_bytes_of_earlier_versions() -> None:
    entries = [
        ("'run-key' of the run", b"1"),
        ("record 'arrays'", b"(0, 'ArrayRecord')"),
        ("record 'config'", b"(1, 'ConfigRecord')"),
        ("'epochs' of 'config'", b"(0, 2)"),
        ("array 'w' of 'arrays'", b"(0, (2,), True)"),
    ]
    stored = hashlib.sha256(encode_configuration(entries)).hexdigest()
    assert stored == "2c97d0bd9f0bef24254498c6a3afd2b556ff602b698f3e52a47b76dba62ee031"
