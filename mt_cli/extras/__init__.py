"""What people add to training and translating. Each can be taken away, with its commands and its tests."""
