"""Coverage-guided fuzzing of all code that reads data from other programs; `targets` has a function for each reader."""
