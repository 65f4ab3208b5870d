"""`splitsecond.yaml`: what may stand in it, what it means, what is wrong with it."""
