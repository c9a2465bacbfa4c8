"""The general model: copy, store-and-forward and delay as a mixed-integer program."""
