"""Functions with a handwritten backward pass, each with its pair: the examples of the page on pairs."""
