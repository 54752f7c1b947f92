"""What two or more processes need: errors, clocks, configuration, ids, encodings, rpc and the generated messages."""
