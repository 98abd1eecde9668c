"""Pages that explain how the suite judges, and the scripts that draw their pictures."""
