"""Records of dead letters: written when a job is buried, and found out when the broker did it."""
