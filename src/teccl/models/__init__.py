"""The paper's formulations: exact models and A*, each from a problem to a schedule."""
