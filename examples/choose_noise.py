"""Laplace or Gaussian noise? It depends on how many of the numbers one person can move."""

import dither as dp

GOAL = dp.Guarantee(epsilon=1, delta=1e-6)
MOST = 40


def errors(groups: int) -> tuple[float, float]:
    """The largest error of ``groups`` sums at 95%, if one person is in all of them: Laplace, Gaussian."""
    everywhere = dp.Sensitivity.contribution(groups=groups, per_group=1)
    laplace, gaussian = (dp.calibrate(kind, GOAL, everywhere) for kind in (dp.Laplace, dp.Gaussian))
    return laplace.error(0.95, coordinates=groups), gaussian.error(0.95, coordinates=groups)


def main() -> None:
    print("ε = 1, δ = 1e-6, and one person moves each of k numbers by up to 1: the largest of k errors at 95%")
    print(f"{'k':>4} {'Laplace':>9} {'Gaussian':>9}")
    for groups in (1, 2, 4, 6, 8, 10, 20, MOST):
        laplace, gaussian = errors(groups)
        print(f"{groups:>4} {laplace:>9.2f} {gaussian:>9.2f}   {'Gaussian' if gaussian < laplace else 'Laplace'}")
    crossing = next(groups for groups in range(1, MOST) if errors(groups)[1] < errors(groups)[0])
    print(f"Gaussian noise is the better one from k = {crossing} on.\n")

    print("A histogram in which one person is in a single group is the case k = 1, however many groups there are:")
    alone = dp.Sensitivity.contribution(groups=1, per_group=1)
    laplace, gaussian = (
        dp.calibrate(kind, GOAL, alone).error(0.95, coordinates=1000) for kind in (dp.Laplace, dp.Gaussian)
    )
    print(f"1000 groups: all within ±{laplace:.1f} (Laplace), ±{gaussian:.1f} (Gaussian).")


if __name__ == "__main__":
    main()
