"""The ground floor: checks, arrays, files, progress bars and optional packages, written once."""
