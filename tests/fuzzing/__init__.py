"""Coverage-guided fuzzing of everything that reads data of other programs; `targets` lists it."""
