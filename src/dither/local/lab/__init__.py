"""All protocols side by side: catalogue, simulation, comparison."""
