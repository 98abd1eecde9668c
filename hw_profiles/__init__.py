"""Hardware profiles: what a program costs on a device, without the device."""
