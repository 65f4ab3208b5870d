"""Plots of the pages."""
