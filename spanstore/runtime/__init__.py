"""The spanserver process: services, the turn of its groups, scan processes, start and drain."""
