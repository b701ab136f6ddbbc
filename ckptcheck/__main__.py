"""`python -m ckptcheck` is the console script."""

from ckptcheck.cli.main import main

if __name__ == "__main__":
    main()
