"""The cells that the build compiles engines for: the structs of lib/cells/cells.h."""

CELLS = ["Lstm"]
