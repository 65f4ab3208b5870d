"""The command line: one file for each command, a thin layer on the other rooms."""
