"""What pytest needs to know before it imports anything."""

from importlib.util import find_spec

# The doctests of modules that need PyTorch wait for it.
collect_ignore = [] if find_spec("torch") is not None else ["src/teccl/torch"]
