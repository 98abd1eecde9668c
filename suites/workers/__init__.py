"""Processes in which foreign code runs."""
