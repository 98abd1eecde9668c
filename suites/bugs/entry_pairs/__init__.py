"""Pairs of the public entry points, a module for each class of problems."""
