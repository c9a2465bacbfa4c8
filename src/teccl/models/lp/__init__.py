"""The paper's linear program, for demands that no copy can serve twice."""
