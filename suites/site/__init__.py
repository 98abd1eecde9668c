"""The site: the guide, the reference and the atlas of claims as static pages, made by ``nox -s site``.

Reading order: `navigation` lists the pages, `guide` copies those that are written by hand, `reference` and `atlas`
make the others from docstrings, the registry and the ledgers, `build` runs Sphinx over all of them, and `checking`
checks the result: links, sizes, and files loaded from other servers.
"""
