"""A real PostgreSQL server for tests, in a temporary folder, run by an ordinary user."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

import pytest

PASSWORD = "sesame/open@once"


def programs():
    """Return the folder with initdb and pg_ctl, or None."""
    on_path = shutil.which("initdb")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def why_not():
    """Return why these tests can't run here, or nothing."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "needs psycopg: pip install 'dpadapt[postgres]'"
    return "" if programs() else "needs PostgreSQL: apt-get install postgresql"


def _ordinary_user():
    """Return how to start a program as a user that initdb accepts: not as the superuser."""
    if os.geteuid():
        return {}, None
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}, user
    raise RuntimeError("no ordinary user to run PostgreSQL as")


class Server:
    """A server on a loopback port and a socket; its superuser is "curator"."""

    def __init__(self, *settings):
        self.folder = Path(tempfile.mkdtemp(prefix="dpadapt-postgres-"))
        self._as_user, user = _ordinary_user()
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        if user is not None:
            for place in (self.folder, secret):
                os.chown(place, user.pw_uid, user.pw_gid)
        self.folder.chmod(0o755)
        self._run(
            "initdb", "-D", self.folder / "data", "-U", "curator", "-A", "scram-sha-256", f"--pwfile={secret}",
            "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions",
        )  # fmt: skip
        secret.unlink()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder}"
        self.start(*settings)

    def _run(self, program, *arguments):
        done = subprocess.run(
            [programs() / program, *map(str, arguments)],
            cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=120, **self._as_user,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout

    def start(self, *settings):
        options = " ".join([self._options, *(f"-c {setting}" for setting in settings)])
        # The log takes the server's output: with a pipe, waiting for pg_ctl would be waiting for the server.
        self._run("pg_ctl", "-D", self.folder / "data", "-l", self.folder / "log", "-w", "-o", options, "start")

    def stop(self, mode="fast"):
        self._run("pg_ctl", "-D", self.folder / "data", "-m", mode, "-w", "stop")

    def restart(self, *settings, mode="immediate"):
        self.stop(mode)
        self.start(*settings)

    def url(self, database="postgres", *, user="curator", password=None, port=None, **options):
        secret = "" if password is None else f":{quote(password, safe='')}"
        more = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in options.items())
        port = port or self.port
        return f"postgresql://{user}{secret}@127.0.0.1:{port}/{database}" + (f"?{more}" if more else "")

    def connect(self, database="postgres", **options):
        import psycopg

        return psycopg.connect(self.url(database, password=PASSWORD, **options), autocommit=True)

    def execute(self, query, *values, database="postgres"):
        """Run one statement as the superuser; return its rows."""
        with self.connect(database) as connection:
            cursor = connection.execute(query, values or None)
            return cursor.fetchall() if cursor.description else []

    def close(self):
        self.stop("immediate")
        shutil.rmtree(self.folder)


@pytest.fixture(scope="session")
def running_server():
    if why_not():
        pytest.skip(why_not())
    server = Server()
    yield server
    server.close()


@pytest.fixture
def server(running_server, monkeypatch):
    """Return a PostgreSQL server that runs, whose password is in the environment."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    return running_server
