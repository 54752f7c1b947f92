"""What is done with rows between two versions: walks over partitions, who does them, how fast; verification."""
