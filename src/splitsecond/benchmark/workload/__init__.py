"""What a run sends: prompts, images, traces and sessions."""
