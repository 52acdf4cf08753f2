"""Expressions over the columns of one row: functions, ranges of their results, values that are public."""
