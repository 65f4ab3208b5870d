"""The revisions of the log's tables. The number of a revision is the version of the tables that it
makes."""
