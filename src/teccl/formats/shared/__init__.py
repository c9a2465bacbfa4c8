"""What several formats share: how a schedule is taken apart or put together, what files are."""
