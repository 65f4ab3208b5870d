"""Result files of other benchmark tools, read as runs."""
