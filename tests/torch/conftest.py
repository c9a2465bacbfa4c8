"""What ranks of the tests run are programs, which nobody may import in search of doctests."""

collect_ignore_glob = ["programs/*"]
