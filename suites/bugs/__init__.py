"""Tests of the suite: published bugs, and bugs that any method can have, planted in the reference methods.

`corpus` lists all mutants, and `declare` has the functions with which bugs are declared. `generic` and `every_method`
make the bugs that any method can have, for every class in the registry; `facts` decides where they are planted. Every
other module with a tuple MUTANTS is a table of bugs that change the source of one method. A class can have its own
table, in a module ``bugs`` in its folder. `edits` and `operators` are the two ways to break a method.
`gradgate.suites.selftest` judges the mutants.
"""
