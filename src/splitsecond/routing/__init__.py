"""Services made from services, and what is known about targets."""
