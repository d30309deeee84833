"""A real PostgreSQL for the tests that need one; it is started here and stopped at the end."""

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

USER = "coterie"
START_SECONDS = 30


def postgres_programs() -> Path | None:
    """Return the directory of initdb and postgres, which is not in PATH on Debian."""
    on_path = shutil.which("initdb")
    places = [os.path.dirname(on_path)] if on_path else []
    places += sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    return next((Path(place) for place in places if (Path(place) / "postgres").exists()), None)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a new server without its database name; it listens only on a Unix socket."""
    pytest.importorskip("psycopg", reason="the PostgreSQL driver psycopg is not installed")
    programs = postgres_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server here: initdb is neither in PATH nor in /usr/lib/postgresql/*/bin")
    with tempfile.TemporaryDirectory(prefix="coterie-pg-") as directory:
        # The server refuses to run as root, and its user must own what it writes to.
        accounts = {account.pw_name: account for account in pwd.getpwall()}
        root = os.getuid() == 0
        account = accounts.get("postgres", accounts["nobody"]) if root else pwd.getpwuid(os.getuid())
        os.chown(directory, account.pw_uid, account.pw_gid)
        become = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if root else {}
        data = f"{directory}/data"
        initdb = [programs / "initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
        subprocess.run(initdb, check=True, cwd=directory, stdout=subprocess.DEVNULL, **become)  # type: ignore[call-overload]
        # Our tests kill clients, never this server or its machine, so it need not wait for the disk.
        settings = ["-c", "listen_addresses=", "-c", "fsync=off"]
        serve = [programs / "postgres", "-D", data, "-k", directory, *settings]
        with open(f"{directory}/log", "w") as log:
            server = subprocess.Popen(serve, cwd=directory, stdout=log, stderr=log, **become)  # type: ignore[call-overload]
        try:
            wait_until_ready(server, directory)
            yield f"postgresql+psycopg://{USER}@/{{database}}?host={directory}"
        finally:
            server.send_signal(signal.SIGQUIT)  # stop at once, because the data is no longer needed
            server.wait(START_SECONDS)


def wait_until_ready(server: "subprocess.Popen[bytes]", directory: str) -> None:
    import psycopg

    give_up = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(host=directory, user=USER, dbname="postgres").close()
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > give_up:
                pytest.fail("PostgreSQL did not start:\n" + Path(directory, "log").read_text())
            time.sleep(0.05)
        else:
            return


@pytest.fixture
def postgres_url(postgres_server: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty database for this test alone."""
    import psycopg

    database = f"test_{zlib.crc32(request.node.nodeid.encode()):x}"
    administration = postgres_server.format(database="postgres").replace("+psycopg", "")
    with psycopg.connect(administration, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}".encode())
        yield postgres_server.format(database=database)
        connection.execute(f"DROP DATABASE {database} WITH (FORCE)".encode())
