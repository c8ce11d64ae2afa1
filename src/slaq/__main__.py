"""`python -m slaq` is `slaq`."""

from slaq.cli.main import main

if __name__ == "__main__":
    main(prog_name="slaq")
