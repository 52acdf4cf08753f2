"""A disk whose flushes take longer than this machine's: for benchmarks of what waits for durable commits.

A library that is loaded before the C library's own adds a pause to ``fsync`` and ``fdatasync``. It needs a C compiler.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PRELOAD, ALREADY = "LD_PRELOAD", "DITHER_BENCHMARK_FLUSH"
SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static void pause_for_a_disk(void) {
    double ms = atof(getenv("DITHER_BENCHMARK_FLUSH"));
    struct timespec t = {(time_t)(ms / 1000), (long)((ms - 1000 * (long)(ms / 1000)) * 1e6)};
    nanosleep(&t, NULL);
}

#define SLOW(name)                                                   \\
    int name(int fd) {                                               \\
        int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, #name);    \\
        pause_for_a_disk();                                          \\
        return real(fd);                                             \\
    }
SLOW(fsync)
SLOW(fdatasync)
"""


def with_slow_flushes(milliseconds: float) -> None:
    """Begin this program again, and whatever it starts, with flushes that take so much longer; once."""
    if os.environ.get(ALREADY):
        return
    # it must last as long as the programs that load it
    library = Path(tempfile.mkdtemp(prefix="dither-slow-disk-")) / "slow.so"
    command = ["cc", "-shared", "-fPIC", "-O2", "-x", "c", "-", "-o", str(library), "-ldl"]
    subprocess.run(command, input=SOURCE, text=True, check=True)
    environment = {**os.environ, PRELOAD: str(library), ALREADY: str(milliseconds)}
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)
