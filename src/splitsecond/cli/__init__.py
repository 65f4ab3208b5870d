"""The command line: one file for each command. Only here is it decided which parts are put together."""
