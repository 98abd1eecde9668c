"""Programs evaluated in at least sixty digits, with a rigorous bound on every error: the oracle without a tolerance."""
