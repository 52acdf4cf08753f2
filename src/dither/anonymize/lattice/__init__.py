"""Full-domain generalisation: one level for each column, the best of all."""
