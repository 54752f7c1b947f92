"""Which group owns which range of keys, and which spanservers hold its replicas."""
