"""Parts that policies share."""
