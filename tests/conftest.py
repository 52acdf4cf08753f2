"""Settings for all tests: hypothesis is deterministic, so that a red run can be repeated."""

import signal

from hypothesis import HealthCheck, settings

# a shell that runs the tests in the background has them ignore interrupts, and some tests interrupt
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("dither", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dither")
