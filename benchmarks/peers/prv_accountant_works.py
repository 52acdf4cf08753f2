"""What prv-accountant is asked for."""

from collections.abc import Callable

import prv_accountant as prv


def sampled_gaussians(sigma: float, rate: float, steps: int, delta: float, error: float) -> Callable[[], list[float]]:
    """The bounds on ε of private SGD, ``error`` to each side."""

    def bounds() -> list[float]:
        step = prv.PoissonSubsampledGaussianMechanism(noise_multiplier=sigma, sampling_probability=rate)
        accountant = prv.PRVAccountant(prvs=[step], max_self_compositions=[steps], eps_error=error, delta_error=1e-9)
        low, _, high = accountant.compute_epsilon(delta=delta, num_self_compositions=[steps])
        return [float(low), float(high)]

    return bounds
