"""Events: scores fitted on draws of their own, and the choice of one event."""
