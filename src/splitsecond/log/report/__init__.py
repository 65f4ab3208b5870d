"""Pages about production traffic."""
