"""The application: runs, tasks, pages and the command line. It stands on the public names of the library."""
