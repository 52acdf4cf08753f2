"""Local privacy: values are randomised before they leave their owner; nobody is trusted."""
