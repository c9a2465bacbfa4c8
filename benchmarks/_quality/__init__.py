"""Quality on a distribution: problems drawn by seed, solved one by one, reported and compared."""
