"""What generate_raw.py makes when the package is built: no part of its interface."""
