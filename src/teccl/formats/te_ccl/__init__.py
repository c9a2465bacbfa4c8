"""TE-CCL: the authors' inputs and outputs."""
