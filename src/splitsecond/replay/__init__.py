"""What would have happened: another policy over the calls of a log
([docs/what-if.md](docs/what-if.md))."""
