"""Privacy bugs to plant, and the runner that plants them: ``make mutants``."""
