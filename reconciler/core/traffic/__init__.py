"""What each endpoint of each pool should weigh."""
