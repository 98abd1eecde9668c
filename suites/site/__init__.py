"""The site: the guide, the reference and the atlas of claims as static pages, made by ``nox -s site``.

Reading order: `navigation` lists the pages, `guide` copies those that are written by hand, `reference` and `atlas`
make the others from docstrings, the registry and the ledgers, `build` runs Sphinx over all of them, and `checking`
reads what came out: links, sizes, and addresses of other servers.
"""
