"""Schedules of a chain: what they cost, and how the least cost is found."""
