"""nvidia-smi: the matrix that `nvidia-smi topo -m` prints."""
