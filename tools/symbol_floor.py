"""Shared libraries for systems older than the one they are linked on.

    symbol_floor.py stubs TAG FOLDER [--cc g++]   libraries to link against, in FOLDER
    symbol_floor.py check TAG LIBRARY...          fails where a library needs something newer

TAG is the glibc of a manylinux tag, such as 2_27. A stub has the name of a system library (libc,
libm, ...) and its symbols, each at the newest version that TAG allows, and no code. A link with
`-LFOLDER` binds to those versions, and what came later is an undefined symbol: with `-z defs` an
error. glibc keeps old versions of what it changes, so the libraries of any later system are enough
to make stubs of. libstdc++ does not: what its headers need is in no older one. It is linked
statically.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

# The newest symbol versions of each tag; as manylinux has them (PEP 600).
FLOORS = {
    "2_17": {"GLIBC": "2.17", "GLIBCXX": "3.4.19", "CXXABI": "1.3.7", "GCC": "4.7.0"},
    "2_27": {"GLIBC": "2.27", "GLIBCXX": "3.4.24", "CXXABI": "1.3.11", "GCC": "7.0.0"},
    "2_28": {"GLIBC": "2.28", "GLIBCXX": "3.4.25", "CXXABI": "1.3.11", "GCC": "7.0.0"},
    "2_31": {"GLIBC": "2.31", "GLIBCXX": "3.4.28", "CXXABI": "1.3.12", "GCC": "7.0.0"},
}

_LOADERS = ["ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"]
_LIBRARIES = ["libc.so.6", "libm.so.6", "libgcc_s.so.1"]
# Parts of libc.so.6 since glibc 2.34. Their symbols are in its stub, but on older systems it is
# these that must be loaded.
_FORMER = ["libpthread.so.0", "libdl.so.2", "librt.so.1"]

_DEFINED = re.compile(
    r"\s*\d+: [0-9a-f]+\s+(\d+|0x[0-9a-f]+) (FUNC|IFUNC|OBJECT|TLS|NOTYPE|GNU_UNIQUE|UNIQUE)\s+"
    r"(?:GLOBAL|WEAK|UNIQUE)\s+DEFAULT\s+\d+ ([^@\s]+)@@?(\S+)$"
)
_UNDEFINED = re.compile(r"\s*\d+: .* UND ([^@\s]+)(?:@(\S+)(?: \(\d+\))?)?$")
_NEEDED = re.compile(r"\(NEEDED\).*\[(.*)\]")


def _number(version):
    return tuple(int(n) for n in version.split("."))


def _allowed(version, floor):
    family, _, number = version.partition("_")
    if family not in floor or not re.fullmatch(r"[\d.]+", number):
        return False
    return _number(number) <= _number(floor[family])


def _readelf(option, library):
    command = ["readelf", "--wide", option, str(library)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def symbols_at(library, floor):
    """{symbol: (version, type, size)} of what `library` exports, as of `floor`."""
    found = {}
    for line in _readelf("--dyn-syms", library):
        match = _DEFINED.match(line)
        if not match or not _allowed(match[4], floor):
            continue
        size, kind, name, version = match.groups()
        if name not in found or _number(found[name][0].partition("_")[2]) < _number(
            version.partition("_")[2]
        ):
            found[name] = (version, kind, int(size, 0))
    return found


def _assembly(symbols):
    lines = []
    for kind in ("code", "data", "tls"):
        flags = {"code": '.text,"ax",@progbits', "data": '.data,"aw",@progbits'}
        lines.append(".section " + flags.get(kind, '.tdata,"awT",@progbits').replace("@", "%"))
        for name, (_, type_, size) in symbols.items():
            own = {"FUNC": "code", "IFUNC": "code", "NOTYPE": "code", "TLS": "tls"}
            if own.get(type_, "data") != kind:
                continue
            elf = {"code": "function", "data": "object", "tls": "tls_object"}[kind]
            room = 8 if kind == "code" else max(size, 1)
            lines += [f".globl {name}", f".type {name}, %{elf}", f".size {name}, {room}"]
            lines += [f"{name}: .zero {room}"]
    return "\n".join([*lines, '.section .note.GNU-stack,"",%progbits', ""])


def _version_script(symbols):
    nodes = collections.defaultdict(list)
    for name, (version, _, _) in symbols.items():
        nodes[version].append(f'    "{name}";')
    return "".join(
        "\n".join([version + " {", "  global:", *sorted(names), "};", ""])
        for version, names in sorted(nodes.items())
    )


def _library_path(cc, name):
    asked = [*cc, "-print-file-name=" + name]
    path = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    return pathlib.Path(path).resolve() if "/" in path else None


def make_stubs(cc, floor, folder):
    """Writes the stubs for what compiler `cc` links, and how `-lc` and the like find them."""
    folder.mkdir(parents=True, exist_ok=True)
    loader = next(name for name in _LOADERS if _library_path(cc, name))
    for name in [*_LIBRARIES, loader, *_FORMER]:
        path = _library_path(cc, name)
        if path is None and name not in _FORMER:
            sys.exit(f"symbol_floor.py: {' '.join(cc)} finds no {name}")
        symbols = {} if name in _FORMER else symbols_at(path, floor)
        source, script = folder / (name + ".s"), folder / (name + ".lds")
        source.write_text(_assembly(symbols))
        script.write_text(_version_script(symbols))
        link = [*cc, "-shared", "-nostdlib", "-Wl,-soname," + name, "-Wa,--noexecstack"]
        if symbols:
            link.append(f"-Wl,--version-script={script}")
        subprocess.run([*link, "-o", str(folder / name), str(source)], check=True)
        source.unlink()
        script.unlink()
    # ld looks for these names in its -L folders, this one first. A part of libc and of libgcc_s
    # is linked statically always.
    static = {name: _library_path(cc, name) for name in ("libc_nonshared.a", "libstdc++.a")}
    if None in static.values():
        sys.exit(f"symbol_floor.py: {' '.join(cc)} does not find all of {', '.join(static)}")
    scripts = {
        "libc.so": f"GROUP ( libc.so.6 {static['libc_nonshared.a']} AS_NEEDED ( {loader} ) )\n",
        "libm.so": "INPUT ( libm.so.6 )\n",
        "libstdc++.so": f"INPUT ( {static['libstdc++.a']} )\n",
        "libgcc_s.so": "GROUP ( libgcc_s.so.1 -lgcc )\n",
    }
    scripts.update({name.rpartition(".")[0]: f"INPUT ( {name} )\n" for name in _FORMER})
    for name, text in scripts.items():
        (folder / name).write_text(text)


def asks_too_much(library, floor):
    """The symbols that `library` needs and that other libraries do not have as of `floor`."""
    found = []
    for line in _readelf("--dyn-syms", library):
        match = _UNDEFINED.match(line)
        if not match:
            continue
        name, version = match.groups()
        if version is None:
            # C++ of a library that happens to export it, such as TensorFlow's std::string.
            if name.startswith("_Z"):
                found.append(name)
        elif version.partition("_")[0] in floor and not _allowed(version, floor):
            found.append(f"{name}@{version}")
    return found


def _not_loaded(library):
    """Those of _FORMER that `library` does not name as needed."""
    needed = {m[1] for m in map(_NEEDED.search, _readelf("--dynamic", library)) if m}
    return [name for name in _FORMER if name not in needed]


def main():
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", choices=["stubs", "check"])
    parser.add_argument("tag", choices=sorted(FLOORS))
    parser.add_argument("paths", nargs="+", type=pathlib.Path)
    parser.add_argument("--cc", default="g++", help="the compiler that links against the stubs")
    args = parser.parse_args()
    floor = FLOORS[args.tag]
    if args.command == "stubs":
        make_stubs(args.cc.split(), floor, args.paths[0])
        return 0
    failed = False
    for path in args.paths:
        problems = [f"asks for {symbol}" for symbol in asks_too_much(path, floor)]
        problems += [f"does not need {name}" for name in _not_loaded(path)]
        failed |= bool(problems)
        print(f"{path}: {'; '.join(problems) or 'runs on glibc ' + floor['GLIBC']}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
