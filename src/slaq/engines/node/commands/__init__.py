"""Any command as a job: its process tree gets the CPU share it was granted, and its loss is read from outside."""
