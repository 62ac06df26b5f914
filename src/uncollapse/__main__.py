"""`python -m uncollapse` is the command line."""

from uncollapse.cli import main

if __name__ == "__main__":
    main()
