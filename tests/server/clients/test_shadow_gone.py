"""The shadow dies under a client: questions go on, and the catalogue comes back."""

import os
import signal

import psycopg
import pytest


def until_it_fails(connection):
    """Backends notice that their postmaster is gone when they are next idle or asked."""
    for _ in range(1000):
        connection.execute("SELECT 1")


def test_a_client_survives_the_shadows_death(served, question):
    with served.charging(1), psycopg.connect(served.uri, autocommit=True) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("ana",)
        directory = served.shadow._process.directory
        postmaster = int((directory / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGKILL)
        with pytest.raises(psycopg.Error) as gone:
            until_it_fails(connection)
        assert gone.value.sqlstate.startswith("57P")
        assert gone.value.diag.message_primary
        assert len(connection.execute(question(901)).fetchall()) == 3
        assert connection.execute("SELECT current_user").fetchone() == ("ana",)
        assert not directory.exists()
