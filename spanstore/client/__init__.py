"""What upper tiers import: routing, leader hints, retries, batching and two-phase commit."""
