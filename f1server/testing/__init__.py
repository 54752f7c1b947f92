"""f1servers in the simulator: the processes, clients through the library that users have, workloads through SQL.

Nothing of the product imports it.
"""
