"""Drawings as SVG text, values as texts: charts of noisy columns, meters of budgets, for pages and notebooks."""
