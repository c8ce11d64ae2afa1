"""The output of verbs: tables, progress bars, live views and formatted times."""
