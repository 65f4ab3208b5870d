"""Policies from text: the list of policies, those of users, expressions, building and preview."""
