"""The timings that the GPU planner's costs are fitted to, and the planner's estimates of them."""

import csv
import ctypes
import dataclasses
import pathlib

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
DATA = ROOT / "benchmarks/data"
# Of a table: the GPUs that it is for, which files are named after, as their names say. Of each kind
# of timings it is fitted to those of the first that has a file.
DEVICES = {"h200": ["h200", "h100"]}


@dataclasses.dataclass(frozen=True)
class Row:
    """A timing."""

    kind: str  # "plan", "products", "layers" or "stationary": the file's name
    problem: tuple  # names and sizes, as the file has them
    engine: str  # or "product" or "layer"
    cut: str
    microseconds: float
    megahertz: float
    device: tuple  # what plans depend on of the GPU

    @property
    def measured(self):
        """What an estimate is of: a step's clocks, a product's or a layer's microseconds."""
        of_step = self.engine not in ("product", "layer")
        return self.microseconds * (self.megahertz if of_step else 1)


def read_file(device, kind, names, sizes):
    """The rows of a kind, none if it was not timed; a problem is columns of names and of sizes."""
    paths = [DATA / f"{kind}_{gpu}.csv" for gpu in DEVICES[device]]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        return []
    with open(path) as file:
        head = file.readline().removeprefix("#").split(",")
        properties = tuple(int(x) for x in (*head[1].split("."), *head[2:]))
        return [
            Row(
                kind, (*(r[k] for k in names), *(int(r[k]) for k in sizes)),
                r.get("engine", kind.removesuffix("s")), r["cut"], float(r["microseconds"]),
                float(r["mhz"]), properties,
            )
            for r in csv.DictReader(file)
        ]  # fmt: skip


def read_rows(device):
    """What the table of a device is fitted to."""
    step = ("batch", "lanes", "hidden", "backward")
    layer = ("batch", "lanes", "hidden", "time", "features", "backward")
    return [
        *read_file(device, "plan", ("cell", "dtype"), step),
        *read_file(device, "stationary", ("cell", "dtype"), step),
        *read_file(device, "products", ("product", "dtype"), ("m", "n", "k")),
        *read_file(device, "layers", ("cell", "dtype", "walk"), layer),
    ]


class Planner:
    """The planner's estimates of rows."""

    def __init__(self, library, rows):
        lib = ctypes.CDLL(str(library))
        lib.plan_costs_name.restype = ctypes.c_char_p
        lib.plan_costs_table.restype = ctypes.POINTER(ctypes.c_double)
        lib.plan_costs_rows.restype = ctypes.c_void_p
        lib.plan_costs_add.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p,
                                       ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p,
                                       ctypes.c_char_p]  # fmt: skip
        lib.plan_costs_add_product.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p,
                                               ctypes.c_void_p, ctypes.c_char_p]  # fmt: skip
        lib.plan_costs_add_layer.argtypes = lib.plan_costs_add.argtypes
        lib.plan_costs_estimate.argtypes = [ctypes.c_void_p] * 3
        lib.plan_costs_free.argtypes = [ctypes.c_void_p]
        self._lib, self._library, self._count = lib, library, len(rows)
        at = ctypes.c_int32()
        names = []
        self._places = []
        while name := lib.plan_costs_name(len(names), ctypes.byref(at)):
            names.append(name.decode())
            self._places.append(at.value)
        self.names = names
        table = lib.plan_costs_table(*rows[0].device[:2])
        self.compiled = {n: table[i] for n, i in zip(names, self._places, strict=True)}
        self._of_device = {}  # rows there, and their numbers here
        for number, row in enumerate(rows):
            if row.device not in self._of_device:
                numbers = (ctypes.c_int64 * len(row.device))(*row.device)
                self._of_device[row.device] = lib.plan_costs_rows(numbers), []
            there, here = self._of_device[row.device]
            if not self._add(there, row):
                raise ValueError(f"the planner has no such cut: {row}")
            here.append(number)

    def _add(self, to, row):
        names = [name.encode() for name in row.problem if isinstance(name, str)]
        sizes = [size for size in row.problem if isinstance(size, int)]
        numbers = (ctypes.c_int64 * len(sizes))(*sizes)
        cut = row.cut.encode()
        if row.engine == "product":
            return self._lib.plan_costs_add_product(to, *names, numbers, cut)
        if row.engine == "layer":
            return self._lib.plan_costs_add_layer(to, *names[:2], numbers, sizes[-1],
                                                  names[2], cut)  # fmt: skip
        return self._lib.plan_costs_add(to, *names, numbers, sizes[-1],
                                        row.engine.encode(), cut)  # fmt: skip

    def of(self, rows):
        """The planner's estimates of some rows."""
        return Planner(self._library, rows)

    def __del__(self):
        for there, _ in self._of_device.values():
            self._lib.plan_costs_free(there)

    def estimate(self, costs):
        """Of each row what was measured, by a dict of costs."""
        table = np.zeros(len(self.names))
        for name, place in zip(self.names, self._places, strict=True):
            table[place] = costs[name]
        estimates = np.zeros(self._count)
        for there, here in self._of_device.values():
            some = np.zeros(len(here))
            self._lib.plan_costs_estimate(there, table.ctypes.data, some.ctypes.data)
            estimates[here] = some
        return estimates
