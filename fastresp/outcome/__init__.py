"""What a user is told: reports, exceptions, and words that show no password."""
