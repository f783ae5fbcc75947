"""The commands, one module a family; ``hushpoint.cli`` registers them."""
