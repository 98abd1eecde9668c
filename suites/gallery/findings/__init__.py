"""Scripts that show the findings of the gallery, each by itself. They run in the environment of their library."""
