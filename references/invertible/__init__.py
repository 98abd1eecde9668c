"""invertible."""
