"""Hardware profiles: what a program costs on a device that need not be there."""
