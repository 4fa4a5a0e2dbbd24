"""What a finished run leaves behind: the results, pictures and tables that its model card shows."""
