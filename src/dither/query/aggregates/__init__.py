"""From aggregates to cells and back: lowering, recipes, estimates with their intervals, errors to expect."""
