"""The suite on trial: bugs that were published, and bugs that any method can have, put into the reference methods.

`corpus` lists them and `declare` says how they are written. `generic` and `every_method` make the bugs that any method
can have, for every class in the registry; `facts` tells them where. Every other module with a tuple MUTANTS is a table
of bugs that are put into a method's own text. A class brings its own in a module ``bugs`` of its folder. `edits` and
`operators` are the two ways to break a method. `gradgate.suites.selftest` judges the mutants.
"""
