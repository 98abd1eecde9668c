"""A function and the plain function that it must agree with: a pair, judged by the engine that judges every method."""
