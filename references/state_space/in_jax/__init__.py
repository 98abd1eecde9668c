"""Methods in JAX."""
