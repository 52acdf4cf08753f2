"""Warner's survey (1965): a share is learned, and no single answer can be held against anybody."""

import numpy as np

import dither as dp

PEOPLE, SHARE = 20_000, 0.12


def main() -> None:
    # made-up truths, so a plain generator does; the lies come from the operating system's randomness
    truth = np.random.default_rng(7).random(PEOPLE) < SHARE

    survey = dp.RandomizedResponse(lie="1/4")
    print(f"Everybody lies with probability 1/4: ε = {survey.loss().pure():.4f} (ln 3), stated for replace.")
    print(f"Before anybody is asked: the estimate will be within ±{survey.error(confidence=0.95, n=PEOPLE):.3f}.")

    answers = survey.release(truth)
    estimate = survey.estimate(answers, confidence=0.95)
    low, high = estimate.interval
    print(f"Answers that say yes: {answers.mean():.3f}. That isn't the share: most of them are lies.")
    print(f"The share: {estimate.value:.3f}, between {low:.3f} and {high:.3f} (truth: {truth.mean():.3f}).\n")

    print("The same with a third answer that hides who took part, from a public list of invitees:")
    hidden = dp.ParticipationResponse.for_epsilon(1)
    slots = np.where(np.arange(PEOPLE) % 3 == 0, 2, truth)  # every third invitee stayed away
    reports = hidden.release(slots)
    low, high = hidden.yes_share(reports, confidence=0.95)
    print(f"ε = {hidden.loss().pure():.4f}, stated for {hidden.loss().adjacency.value}.")
    print(f"The share of yes among those who took part: between {low:.3f} and {high:.3f}.")


if __name__ == "__main__":
    main()
