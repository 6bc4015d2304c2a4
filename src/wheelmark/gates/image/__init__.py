"""Gates that look at a target's container image, as it lies in the release directory's layout."""
