"""The public Python API, which `import splitsecond` re-exports lazily. `splitsecond.sync` is its
synchronous form."""
