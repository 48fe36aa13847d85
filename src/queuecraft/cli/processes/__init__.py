"""Worker processes: started, watched over, restarted and stopped by `queuecraft run`."""
