"""ASTRA-sim's configuration: the network, the system and the workload around a collective."""
