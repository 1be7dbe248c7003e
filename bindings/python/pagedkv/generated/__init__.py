"""What bindings/python/generate_raw.py makes: not a part of the interface of this package."""
