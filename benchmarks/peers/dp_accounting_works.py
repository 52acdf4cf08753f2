"""What dp-accounting is asked for, at its defaults."""

from collections.abc import Callable

from dp_accounting.pld import privacy_loss_distribution as pld


def sampled_gaussians(
    sigma: float, rate: float, steps: int, delta: float, *, optimistic: bool = False
) -> Callable[[], float]:
    """ε of private SGD; ``optimistic`` for the lower end."""
    more = {"pessimistic_estimate": False, "use_connect_dots": False} if optimistic else {}

    def epsilon() -> float:
        one = pld.from_gaussian_mechanism(sigma, sampling_prob=rate, **more)
        return float(one.self_compose(steps).get_epsilon_for_delta(delta))

    return epsilon


def gaussians(sigma: float, times: int, delta: float) -> Callable[[], float]:
    """ε of Gaussians without sampling."""
    return lambda: float(pld.from_gaussian_mechanism(sigma).self_compose(times).get_epsilon_for_delta(delta))
