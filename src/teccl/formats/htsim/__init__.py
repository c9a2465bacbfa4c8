"""htsim's topology text: trees of switches, tier by tier."""
