"""The inner problem: models and optimisers."""
