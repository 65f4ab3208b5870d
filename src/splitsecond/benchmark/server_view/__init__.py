"""What servers and GPUs tell about themselves during a run: the pages where they do (`discovery`),
the process that reads them (`reader`, started by `watcher`), and what their metrics mean (`terms`,
and `engines`, one file each)."""
