"""When requests leave, and what their times mean."""
