"""Functions with a backward pass by hand, each with its pair: the examples of the page on pairs."""
