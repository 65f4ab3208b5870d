"""Who the providers are, as data files. Adding one is adding a file to `providers/`; no code knows one."""
