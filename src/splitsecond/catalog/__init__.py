"""Who the providers are, as data files. Adding a provider is adding one file to `providers/`; no code here knows one."""
