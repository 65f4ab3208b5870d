"""`/dashboard`: the running gateway for the eye, in a browser that needs nothing else."""
