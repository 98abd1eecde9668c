"""The census: every handwritten derivative of public packages, counted, and judged by ``gradgate watch``.

A package is a script of at most 25 lines that calls its rules with gradients (`packages/NAME.py`, with the inline
metadata of a library file of the gallery). Nothing else is declared: no reference and no pair. `source` counts the
rules in a package's text, `package` judges one package, `run` is the command, and `page` writes the table.
"""
