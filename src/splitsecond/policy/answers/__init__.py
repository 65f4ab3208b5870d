"""Answers that are looked into, kept, or carried on."""
