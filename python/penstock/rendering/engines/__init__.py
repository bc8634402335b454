"""Who renders chunks: programs of this machine, tasks on Ray, or anybody's executor."""
