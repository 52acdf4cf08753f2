"""A tour: what a release costs, how wrong it may be, and what several of them cost together."""

import dither as dp


def main() -> None:
    one = dp.Sensitivity.l1(1)
    patients = 4213

    print("1. Say how much noise; the cost and the error follow.")
    count = dp.DiscreteLaplace(scale=2)
    print(
        f"   ε = {count.loss(one).pure():g}, within ±{count.error(confidence=0.95):g} at 95%: {count.release(patients)}"
    )

    print("2. Or say what must hold, and get the noise.")
    private = dp.calibrate(dp.Laplace, dp.Guarantee(epsilon=1), one)
    precise = dp.calibrate(dp.Laplace, error=3, confidence=0.95)
    print(f"   ε = 1 needs scale {float(private.scale):g}; ±3 allows scale {float(precise.scale):.4f}")

    print("3. Choose the best of several options.")
    votes = [310, 287, 154, 402]
    choice = dp.Exponential(scale=2)
    cost = choice.loss(dp.Sensitivity.linf(1)).pure()
    worst = choice.error(confidence=0.95, candidates=len(votes))
    print(f"   ε = {cost:g}: option {choice.release(votes)}, at most {worst:.1f} votes short of the best at 95%")

    print("4. Add costs up: the bounds on both sides are certified.")
    total = 100 * dp.Laplace(scale=20).loss(one)
    low, high = total.epsilon_bounds(delta=1e-6)
    print(f"   a hundred releases of ε = 0.05: ε = {total.pure():g}; at δ = 1e-6 between {low:.4f} and {high:.4f}")

    print("5. Say it in words.")
    print(f"   {dp.Guarantee(epsilon=1).sentence(prior=0.1)}")


if __name__ == "__main__":
    main()
