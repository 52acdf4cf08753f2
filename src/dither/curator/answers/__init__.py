"""From exact cells to an answer: noise, shape, intervals."""
