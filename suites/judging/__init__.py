"""Judging a claim: problems, surroundings, the rule of equality, verdicts."""
