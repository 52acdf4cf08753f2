"""Settings for all tests: hypothesis is deterministic, so that a red run can be repeated."""

from hypothesis import HealthCheck, settings

settings.register_profile("dither", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dither")
