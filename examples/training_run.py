"""The cost of a training run with noisy gradients: what it is, what it isn't, and how to choose the noise."""

import dither as dp

RATE, STEPS, DELTA = 0.004, 10_000, 1e-5
CLIPPED = dp.Sensitivity.l2(1)  # gradients are clipped to length 1; the scale is in units of that length


def main() -> None:
    step = dp.poisson(dp.Gaussian(scale=0.8).loss(CLIPPED), rate=RATE)
    print(f"σ = 0.8, every example in a step with probability {RATE:g}, δ = {DELTA:g}:")
    for steps in (1, 100, 1_000, STEPS):
        low, high = (steps * step).epsilon_bounds(delta=DELTA)
        print(f"   {steps:>6} steps: ε between {low:.4f} and {high:.4f}")

    print("\nThe noise for a wanted guarantee:")
    for epsilon in (1, 2, 4):
        found = dp.calibrate(
            dp.Gaussian,
            dp.Guarantee(epsilon=epsilon, delta=DELTA),
            CLIPPED,
            plan=lambda loss: STEPS * dp.poisson(loss, rate=RATE),
        )
        print(f"   ε = {epsilon}: σ = {float(found.scale):.4f}")

    print("\nA formula that circulates says: T steps at rate q cost (qTε, qTδ). It isn't so:")
    run = 10 * dp.poisson(dp.Laplace(scale="1/2").loss(dp.Sensitivity.l1(1)), rate=0.1)
    print("   ε = 2, q = 0.1, T = 10: the formula promises (2, 0).")
    print(f"   The run has δ = {run.delta(2):.2e} at ε = 2, and needs ε = {run.pure():.2f} for δ = 0.")


if __name__ == "__main__":
    main()
