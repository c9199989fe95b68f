"""The bill of materials of a release: what the wheels hold, in CycloneDX 1.5.

Deterministic: the serial number comes from the content, the time from SOURCE_DATE_EPOCH.
"""

import datetime
import hashlib
import json
import pathlib
import re
import uuid
import zipfile

import wheel_limits

_APACHE = {"license": {"id": "Apache-2.0"}}
# Third-party code that is compiled into our libraries: in which distributions, and whose it is.
INSIDE = {
    "highway": {
        "in": ["haste_keras"],
        "description": "Google Highway: headers alone, compiled into libhaste.so",
        "licenses": [_APACHE],
        "purl": "pkg:github/google/highway@{}",
        "supplier": {"name": "Google"},
    },
    "tensorflow-c-api": {
        "in": ["haste_keras"],
        "description": "headers of TensorFlow's C API, compiled into libhaste_ops.so",
        "licenses": [_APACHE],
        "purl": "pkg:github/tensorflow/tensorflow@v{}",
        "supplier": {"name": "The TensorFlow Authors"},
    },
    "libstdc++": {
        "in": ["haste_keras", "haste_keras_cuda"],
        "description": "C++ runtime of GCC, linked statically into every library",
        "licenses": [{"expression": "GPL-3.0-or-later WITH GCC-exception-3.1"}],
        "purl": "pkg:generic/gnu/gcc@{}",
        "supplier": {"name": "Free Software Foundation"},
    },
    "cudart-static": {
        "in": ["haste_keras_cuda"],
        "description": "CUDA runtime, linked statically into libhaste_cuda.so",
        "licenses": [
            {
                "license": {
                    "name": "NVIDIA CUDA Toolkit End User License Agreement",
                    "url": "https://docs.nvidia.com/cuda/eula/",
                }
            }
        ],
        "purl": "pkg:generic/nvidia/cudart-static@{}",
        "supplier": {"name": "NVIDIA Corporation"},
    },
}
# Macros of a header that spell a version, as they stand in `#define NAME NUMBER`.
_MACROS = {
    "highway": ("HWY_MAJOR", "HWY_MINOR", "HWY_PATCH"),
    "cudart-static": ("CUDART_VERSION",),
}


def version_in_headers(part: str, text: str) -> str:
    """The version that `text`, headers of a part of INSIDE, defines."""
    numbers = []
    for macro in _MACROS[part]:
        found = re.search(rf"^\s*#\s*define\s+{macro}\s+(\d+)", text, re.MULTILINE)
        if not found:
            raise ValueError(f"{part}: expected `#define {macro} NUMBER` in its headers")
        numbers.append(int(found[1]))
    if part == "cudart-static":
        numbers = [numbers[0] // 1000, numbers[0] % 1000 // 10]
    return ".".join(map(str, numbers))


def _hashes(data: bytes):
    return [{"alg": "SHA-256", "content": hashlib.sha256(data).hexdigest()}]


def _wheel(path: pathlib.Path):
    """The component of a wheel, with its libraries in it."""
    distribution, version, _ = wheel_limits.parts(path)
    libraries = []
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".so"):
                library = {"type": "file", "bom-ref": f"{path.name}/{name}", "name": name}
                libraries.append(library | {"hashes": _hashes(archive.read(name))})
    name = distribution.replace("_", "-")
    return {
        "type": "library",
        "bom-ref": path.name,
        "name": name,
        "version": version,
        "licenses": [_APACHE],
        "purl": f"pkg:pypi/{name}@{version}?file_name={path.name}",
        "hashes": _hashes(path.read_bytes()),
        "components": libraries,
    }


def _inside(part: str, version: str):
    about = INSIDE[part]
    component = {k: v for k, v in about.items() if k not in ("in", "purl")}
    return {
        "type": "library",
        "bom-ref": part,
        "name": part,
        "version": version,
        **component,
        "purl": about["purl"].format(version),
    }


def sbom(version: str, seconds: int, wheels: list[pathlib.Path], inside: dict[str, str]) -> dict:
    """The document: `wheels` of one `version`, dated `seconds` since 1970.

    inside: {part of INSIDE: its version}, of those that the wheels have.
    """
    wheels = sorted(wheels, key=lambda wheel: wheel.name)
    main = f"haste-keras@{version}"
    when = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    dependencies = [{"ref": main, "dependsOn": [wheel.name for wheel in wheels]}]
    for wheel in wheels:
        distribution = wheel_limits.parts(wheel)[0]
        parts = [part for part in sorted(inside) if distribution in INSIDE[part]["in"]]
        dependencies.append({"ref": wheel.name, "dependsOn": parts})
    dependencies += [{"ref": part} for part in sorted(inside)]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "library",
                "bom-ref": main,
                "name": "haste-keras",
                "version": version,
                "licenses": [_APACHE],
                "purl": f"pkg:pypi/haste-keras@{version}",
            },
        },
        "components": [*map(_wheel, wheels), *(_inside(p, inside[p]) for p in sorted(inside))],
        "dependencies": dependencies,
    }
    content = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    serial = uuid.uuid5(uuid.NAMESPACE_URL, f"haste-keras:{content}")
    return {**document, "serialNumber": f"urn:uuid:{serial}"}


def write(document: dict, path: pathlib.Path) -> None:
    """Writes the document, the same bytes for the same content."""
    path.write_text(json.dumps(document, indent=2) + "\n")
