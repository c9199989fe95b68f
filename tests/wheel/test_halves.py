"""The two halves in wheels: their contents, how they find each other, and the drivers they need."""

import ctypes
import os
import subprocess
import sys

import conftest
import fatbins
import pytest

# Queries libhaste.so without Python packages, and prints the answers.
PROGRAM = """
import ctypes, sys

class Status(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("message", ctypes.c_char * 508)]

class Info(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("path", ctypes.c_char * 4096),
                ("architectures", ctypes.c_char * 256), ("toolkit", ctypes.c_int32),
                ("driver", ctypes.c_int32)]

haste, status, info = ctypes.CDLL(sys.argv[1]), Status(), Info(ctypes.sizeof(Info))
if len(sys.argv) > 2:
    haste.haste_load_cuda(sys.argv[2].encode(), ctypes.byref(status))
    print("load:", status.message.decode())
status = Status()
print("has:", haste.haste_has_cuda())
print("driver:", haste.haste_cuda_driver_status(ctypes.byref(status)), status.message.decode())
if haste.haste_cuda_info(ctypes.byref(info), ctypes.byref(status)) == 0:
    print("info:", info.path.decode(), info.toolkit, info.driver, info.architectures.decode())
"""


def ask(library, *arguments, **environment):
    """What PROGRAM prints: {"has": "1", …}."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HASTE_")}
    command = [sys.executable, "-c", PROGRAM, library, *arguments]
    done = subprocess.run(
        command, env={**clean, **environment}, capture_output=True, text=True, check=True
    )
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


def device_code(library):
    return fatbins.images(library.read_bytes())


def test_the_cpu_half_has_no_device_code(cpu_site):
    libraries = sorted(cpu_site.rglob("*.so"))
    assert [library.name for library in libraries] == [
        "libhaste.so",
        "libhaste_ops.so",
        "libhaste_xla.so",
    ]
    assert not any(device_code(library) for library in libraries)


def test_headers_compile(cpu_site, tmp_path):
    source = tmp_path / "version.cc"
    source.write_text(
        "#include <haste/rnn.h>\n#include <stdio.h>\n"
        "int main() { return puts(haste_version()) < 0; }\n"
    )
    package = cpu_site / "haste_keras"
    command = ["c++", "-std=c++17", source, f"-I{package}/include", package / "libhaste.so"]
    subprocess.run([*command, f"-Wl,-rpath,{package}", "-o", tmp_path / "version"], check=True)
    said = subprocess.run([tmp_path / "version"], check=True, capture_output=True, text=True)
    assert said.stdout.strip() == ctypes_version(package / "libhaste.so")


def ctypes_version(library):
    haste = ctypes.CDLL(str(library))
    haste.haste_version.restype = ctypes.c_char_p
    return haste.haste_version().decode()


def test_device_code_is_compressed_for_the_drivers_of_its_gpus(site):
    found = device_code(site / "haste_keras_cuda/libhaste_cuda.so")
    assert found
    newest = [image for image in found if image.architecture in ("100", "120")]
    for image in found:
        # zstd needs the drivers of 2024 and newer, which these GPUs need anyway.
        newer = image in newest or (newest and image.kind == "ptx")
        assert image.compression == ("zstd" if newer else "lz4"), image


def test_architectures_are_what_the_half_says(site):
    said = ask(site / "haste_keras/libhaste.so")["info"].split()[3:]
    found = device_code(site / "haste_keras_cuda/libhaste_cuda.so")
    named = {i.architecture if i.kind == "elf" else f"compute_{i.architecture}" for i in found}
    assert named == set(said)


def test_the_half_is_found_beside_the_package(site):
    said = ask(site / "haste_keras/libhaste.so")
    assert said["has"] == "1"
    path = said["info"].split()[0]
    assert os.path.samefile(path, site / "haste_keras_cuda/libhaste_cuda.so")


def test_without_the_half(cpu_site):
    said = ask(cpu_site / "haste_keras/libhaste.so")
    assert said["has"] == "0"
    assert said["driver"].startswith("12 the CUDA half of haste is not installed: `pip install")


def test_the_half_elsewhere(cpu_site, site):
    haste, half = cpu_site / "haste_keras/libhaste.so", site / "haste_keras_cuda/libhaste_cuda.so"
    assert ask(haste, HASTE_CUDA_LIBRARY=str(half))["has"] == "1"
    assert ask(haste, half) | {"load": "", "has": "1"} == ask(haste, half)
    left_out = ask(site / "haste_keras/libhaste.so", HASTE_CUDA_LIBRARY="")
    assert left_out["has"] == "0"
    assert "HASTE_CUDA_LIBRARY is empty" in left_out["driver"]


def test_something_else_in_its_place(cpu_site, tmp_path):
    haste = cpu_site / "haste_keras/libhaste.so"
    said = ask(haste, haste)
    assert "libhaste.so is not the CUDA half of haste" in said["load"]
    text = tmp_path / "libhaste_cuda.so"
    text.write_text("not a library")
    said = ask(haste, text)
    assert said["has"] == "0"
    assert "libhaste_cuda.so" in said["load"]


def test_a_half_of_another_version(site, tmp_path):
    half = tmp_path / "libhaste_cuda.so"
    version = ctypes_version(site / "haste_keras/libhaste.so").encode()
    other = (version[:-1] + (b"1" if version[-1:] != b"1" else b"2")).decode()
    source = tmp_path / "half.c"
    source.write_text(
        "static const struct { const char* version; unsigned long bytes; } half = { VERSION, 8 };\n"
        "const void* haste_cuda_backend(void) { return &half; }\n"
    )
    subprocess.run(
        ["cc", "-shared", "-fPIC", f'-DVERSION="{other}"', source, "-o", half], check=True
    )
    said = ask(site / "haste_keras/libhaste.so", half)
    assert f"is of haste {other}, but this is haste {version.decode()}" in said["load"]
    assert said["has"] == "0"


@pytest.mark.parametrize("version", [12000, 12040, 12090, 13000, 14000])
def test_drivers_that_run_it(site, driver, version):
    said = ask(
        site / "haste_keras/libhaste.so",
        LD_LIBRARY_PATH=str(driver),
        FAKE_CUDA_VERSION=str(version),
    )
    toolkit = int(said["info"].split()[1])
    if toolkit // 1000 > version // 1000:
        pytest.skip(f"built with CUDA {toolkit}")
    assert said["driver"] == "0 "
    assert said["info"].split()[2] == str(version)


def test_a_driver_that_is_too_old(site, driver):
    said = ask(
        site / "haste_keras/libhaste.so", LD_LIBRARY_PATH=str(driver), FAKE_CUDA_VERSION="11080"
    )
    assert said["driver"].startswith("12 CUDA: the NVIDIA driver runs CUDA up to 11.8, but this")
    assert "which needs driver 5" in said["driver"]


def test_wheels_of_a_release_run_on_driver_525(site):
    toolkit = int(ask(site / "haste_keras/libhaste.so")["info"].split()[1])
    if "CUDA_HOME" in os.environ:
        pytest.skip("built with a toolkit of the caller's")
    assert toolkit // 1000 == 12


def test_installed_package_computes(cpu_site, tmp_path):
    """The user's first command, `python -m haste_keras.check`, with the wheel's files alone."""
    command = [sys.executable, "-m", "haste_keras.check"]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HASTE_")}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**clean, "PYTHONPATH": str(cpu_site)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(cpu_site) in done.stdout


@pytest.mark.parametrize("distribution", ["haste_keras", "haste_keras_cuda"])
def test_auditwheel_agrees_with_the_tag(distribution, tmp_path):
    found = conftest.wheel(distribution)
    if found is None:
        pytest.skip(f"dist/ has no {distribution} wheel")
    tag = found.stem.rpartition("-")[2]
    # TensorFlow's library is not packed: the installed one is used.
    command = ["repair", "--plat", tag, "--only-plat", "--exclude", "libtensorflow_framework.so.2"]
    tools = os.path.dirname(sys.executable)
    done = subprocess.run(
        [sys.executable, "-m", "auditwheel", *command, "-w", tmp_path, found],
        env={**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (repaired,) = tmp_path.iterdir()
    assert tag in repaired.stem.rpartition("-")[2].split(".")


def test_code_for_one_gpu_keeps_its_size(site):
    """A release has six such, and an index takes 100 MB a file.

    9.0 has the most, 38.3 MB: tiles and odd rows are its alone, and so is R on the chip for
    floats, layer-normalised cells, the sLSTM and both GRUs. wheel_limits.py holds the sum.
    """
    total = {}
    for image in device_code(site / "haste_keras_cuda/libhaste_cuda.so"):
        total.setdefault(image[:2], 0)
        total[image[:2]] += image.stored
    assert max(total.values()) < 39e6, total
