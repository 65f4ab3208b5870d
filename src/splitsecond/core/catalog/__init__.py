"""Catalogue of providers as data files. Adding a provider is adding a file to `providers/`; no code
names one."""
