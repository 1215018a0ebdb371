"""`python -m njax`, the same as `njax`."""

from njax.cli import main

if __name__ == "__main__":
    main()
