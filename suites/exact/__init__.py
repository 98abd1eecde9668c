"""Programs evaluated in sixty digits and more, with a rigorous bound on every error: the oracle without a tolerance."""
