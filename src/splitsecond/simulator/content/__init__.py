"""Contents of simulated responses."""
