"""The parts of the testing kit for users' apps: virtual time, the outside, crash matrix, pytest."""
