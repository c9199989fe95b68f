"""`python -m haste_keras.accelerate SOURCE TARGET`: a SavedModel of Keras's layers, made faster.

Writes to TARGET what `haste_keras.serving.accelerate` makes of SOURCE, and prints what became of
each loop. Exits with 1 if no loop was rewritten.
"""

import argparse
import sys

from haste_keras.serving import accelerate


def main(arguments=None):
    """Runs the command and returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m haste_keras.accelerate", description=__doc__)
    parser.add_argument("source", metavar="SOURCE", help="folder of the SavedModel")
    parser.add_argument("target", metavar="TARGET", help="folder to write")
    given = parser.parse_args(arguments)
    try:
        reports = accelerate(given.source, given.target)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    for each in reports:
        print(each)
    done = sum(each.layer is not None for each in reports)
    print(f"{done} of {len(reports)} loops rewritten: {given.target}")
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
