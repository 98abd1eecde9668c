"""gradgate's own trial, as far as a given time reaches: mutants, seeds, and random pairs and calls that are right."""
