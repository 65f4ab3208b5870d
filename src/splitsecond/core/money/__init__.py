"""Cost of attempts, from token counts and prices."""
