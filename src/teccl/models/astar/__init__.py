"""A*: the general model cut into rounds in time."""
