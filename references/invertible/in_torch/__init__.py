"""Methods in PyTorch."""
