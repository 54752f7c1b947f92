"""One replica of one group: consensus, versions and transactions put together, and the driver of their effects."""
