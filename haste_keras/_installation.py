"""What is installed and what can run here, for `python -m haste_keras.check`.

Each fact comes from one function; `collect` asks them all, `report` puts them in words, and
`problems` says what to do about those that stand in the way. The last two read only what
they are given, so that a machine without a GPU can test the report of one that has a GPU.
"""

import ctypes
import dataclasses
import importlib.metadata
import os
import pathlib
import platform

import keras
import numpy as np
import tensorflow as tf

from haste_keras.explain import clusters
from haste_keras.native import binding, library

OLDEST_GPU = (7, 5)
# The first driver that runs CUDA of a major version.
_DRIVERS = {12: "525", 13: "580"}
_DRIVER_PAGE = "https://www.nvidia.com/drivers"
_ENGINES = ("block", "cluster", "grid", "tiled", "blas", "stepwise", "scan")
# Attributes of cuDeviceGetAttribute.
_SM_MAJOR, _SM_MINOR, _MULTIPROCESSORS, _L2_BYTES, _SHARED_BYTES = 75, 76, 16, 38, 97


@dataclasses.dataclass(frozen=True)
class TensorFlow:
    """version; cuda: that it is built with, or None; abi_known: whether our ops know this one."""

    version: str
    cuda: str | None = None
    abi_known: bool = True


@dataclasses.dataclass(frozen=True)
class Half:
    """The CUDA half: path; toolkit: 12040 is CUDA 12.4; architectures: "75 90a compute_90"."""

    path: str
    toolkit: int
    architectures: str


@dataclasses.dataclass(frozen=True)
class Driver:
    """version: "580.95.05", or None where it does not say; cuda: the newest that it runs."""

    version: str | None
    cuda: int


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU that the driver shows to this process. engines: names of those that run on it."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    engines: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Facts:
    """All of it.

    no_half: why there is no CUDA half. installed_half: version of haste-keras-cuda, or None.
    visible_gpus: how many GPUs TensorFlow sees.
    gpu_kernels: (whether TensorFlow runs our kernels on its GPUs, why not).
    graph_plugin: (whether portable models run our ops, why not).
    xla: (whether functions that XLA compiles run our kernels, why not).
    """

    haste: str
    package: pathlib.Path
    tensorflow: TensorFlow
    keras: str
    numpy: str
    python: str
    cpu_target: str
    threads: int
    half: Half | None
    no_half: str
    installed_half: str | None
    driver: Driver | None
    gpus: tuple[Gpu, ...]
    visible_gpus: int
    gpu_kernels: tuple[bool, str]
    graph_plugin: tuple[bool, str]
    xla: tuple[bool, str]


def tensorflow_build():
    """The TensorFlow that runs."""
    build = tf.sysconfig.get_build_info()
    cuda = build.get("cuda_version") if build.get("is_cuda_build") else None
    return TensorFlow(tf.__version__, cuda, library.abi()[0])


def cpu_target():
    """The SIMD instructions that CPU kernels use here."""
    return library.c_api().cpu_target()


def cpu_threads():
    """Threads of TensorFlow's that CPU kernels use."""
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    return threads or len(os.sched_getaffinity(0))


def cuda_half():
    """(the CUDA half or None, why there is none)."""
    api = library.c_api()
    try:
        if not api.has_cuda():
            api.cuda_status()
        info = api.cuda_info()
    except binding.Error as error:
        return None, error.message
    path = info.path.decode() or str(library.LIBRARY)
    return Half(path, info.toolkit_version, info.architectures.decode()), ""


def installed_half():
    """Version of the distribution that brings the CUDA half, or None where it is not installed."""
    try:
        return importlib.metadata.version("haste-keras-cuda")
    except importlib.metadata.PackageNotFoundError:
        return None


def _load(name):
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def driver(libcuda=None, libnvml=None):
    """The NVIDIA driver, or None; asked through its own libraries, or those given."""
    libcuda = libcuda or _load("libcuda.so.1")
    cuda = ctypes.c_int()
    if libcuda is None or libcuda.cuDriverGetVersion(ctypes.byref(cuda)) != 0:
        return None
    libnvml = libnvml or _load("libnvidia-ml.so.1")
    version = ctypes.create_string_buffer(80)
    said = False
    if libnvml is not None and libnvml.nvmlInit_v2() == 0:
        said = libnvml.nvmlSystemGetDriverVersion(version, len(version)) == 0
        libnvml.nvmlShutdown()
    return Driver(version.value.decode() if said else None, cuda.value)


def current_device():
    """What plans count on for the first GPU; None where the CUDA half does not run on it."""
    api = library.c_api()
    if not api.has_cuda():
        return None
    try:
        return api.cuda_device()
    except binding.Error:  # `gpu_kernels` says why
        return None


def gpus(libcuda=None, first=None):
    """The GPUs that the driver shows to this process, whatever TensorFlow sees.

    first: DeviceProperties of the first, as `current_device` gives them. Of the others, and of the
    first where they are None, the clusters that fit are estimated.
    """
    libcuda = libcuda or _load("libcuda.so.1")
    count = ctypes.c_int()
    if libcuda is None or libcuda.cuInit(0) != 0:
        return ()
    libcuda.cuDeviceGetCount(ctypes.byref(count))
    known = [first] + [None] * count.value
    return tuple(_gpu(libcuda, ordinal, known[ordinal]) for ordinal in range(count.value))


def _gpu(libcuda, ordinal, properties):
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    libcuda.cuDeviceGet(ctypes.byref(device), ordinal)
    libcuda.cuDeviceGetName(name, len(name), device)
    properties = properties or _estimated(libcuda, device)
    capability = properties.sm_major, properties.sm_minor
    engines = engines_on(properties)
    return Gpu(name.value.decode(), capability, properties.multiprocessors, engines)


def _estimated(libcuda, device):
    """DeviceProperties from what the driver says, which does not know clusters."""

    def attribute(number):
        value = ctypes.c_int()
        libcuda.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        return value.value

    major, minor, multiprocessors = map(attribute, (_SM_MAJOR, _SM_MINOR, _MULTIPROCESSORS))
    fitting = clusters([multiprocessors] if major >= 9 else [])
    return binding.DeviceProperties(
        *(major, minor, multiprocessors, attribute(_SHARED_BYTES), attribute(_L2_BYTES), fitting)
    )


def engines_on(properties):
    """Names of the engines that a small layer can ask for on a GPU of these properties."""
    found = []
    for engine in _ENGINES:
        cell = b"qrnn_fo" if engine == "scan" else b"lstm"
        config = binding.RnnConfig(cell=cell, engine=engine.encode())
        config.device = binding.DEVICES["cuda"]
        config.batch, config.time, config.lanes, config.hidden = 16, 16, 1, 64
        config.recurrent_activation = binding.ACTIVATIONS["sigmoid"]
        try:
            library.c_api().plan_for(config, properties)
        except binding.Error:
            continue
        found.append(engine)
    return tuple(found)


def visible_gpus():
    """How many GPUs TensorFlow sees."""
    return len(tf.config.list_physical_devices("GPU"))


def gpu_kernels():
    """(whether TensorFlow runs our kernels on its GPUs, why not)."""
    registered, why = library.gpu_kernels()
    if registered and not visible_gpus():
        return False, "TensorFlow sees no GPU"
    return registered, why


def collect():
    """Asks for every fact."""
    half, no_half = cuda_half()
    return Facts(
        haste=library.version(),
        package=library.PACKAGE,
        tensorflow=tensorflow_build(),
        keras=keras.__version__,
        numpy=np.__version__,
        python=platform.python_version(),
        cpu_target=cpu_target(),
        threads=cpu_threads(),
        half=half,
        no_half=no_half,
        installed_half=installed_half(),
        driver=driver(),
        gpus=gpus(first=current_device()),
        visible_gpus=visible_gpus(),
        gpu_kernels=gpu_kernels(),
        graph_plugin=library.graph_plugin(),
        xla=library.xla_here(),
    )


def _cuda(version):
    return f"{version // 1000}.{version % 1000 // 10}"


def _architectures(names):
    """The architectures of a Half in words: 7.5, 9.0a, PTX of 9.0."""
    words = []
    for name in names.split():
        number = name.removeprefix("compute_")
        digits = number.rstrip("af")
        said = f"{digits[:-1]}.{digits[-1]}{number[len(digits) :]}"
        words.append(f"PTX of {said}" if number != name else said)
    return ", ".join(words)


def report(facts):
    """Lines that say what is there."""
    build = facts.tensorflow
    cuda = f"built with CUDA {build.cuda}" if build.cuda else "CPU build"
    known = "its ABI is known" if build.abi_known else "its ABI is not known"
    yield f"haste_keras  {facts.haste}, {facts.package}"
    yield f"TensorFlow   {build.version}, {cuda}, {known}"
    yield f"Keras        {facts.keras}, NumPy {facts.numpy}, Python {facts.python}"
    yield f"CPU          {facts.cpu_target}, {facts.threads} threads"
    if facts.half:
        toolkit, code = _cuda(facts.half.toolkit), _architectures(facts.half.architectures)
        yield f"CUDA half    {facts.half.path}, built with CUDA {toolkit} for {code}"
    else:
        yield f"CUDA half    none: {facts.no_half}"
    if facts.driver:
        version = facts.driver.version or "of a version that it does not say"
        yield f"driver       {version}, runs CUDA up to {_cuda(facts.driver.cuda)}"
    else:
        yield "driver       no NVIDIA driver"
    for i, gpu in enumerate(facts.gpus):
        engines = f"engines {', '.join(gpu.engines)}" if gpu.engines else "no engine"
        yield (
            f"GPU {i}        {gpu.name}, compute capability {gpu.capability[0]}."
            f"{gpu.capability[1]}, {gpu.multiprocessors} multiprocessors: {engines}"
        )
    runs, reason = facts.gpu_kernels
    yield f"GPU kernels  {'run' if runs else f'do not run: {reason}'}"
    active, reason = facts.graph_plugin
    state = "active, portable models run these ops" if active else f"not active: {reason}"
    yield f"plug-in      {state}"
    compiles, reason = facts.xla
    yield f"XLA          {'runs the kernels' if compiles else f'does not run them: {reason}'}"


def problems(facts):
    """(sentence, what fixes it) for each thing that keeps a part of haste_keras from running."""
    if not facts.tensorflow.abi_known:
        yield (
            f"haste_keras {facts.haste} does not know the ABI of TensorFlow "
            f"{facts.tensorflow.version}: CPU kernels run on threads of their own, GPU kernels "
            "do not run",
            "pip install --upgrade haste-keras",
        )
    if not facts.half and (facts.gpus or facts.installed_half):
        yield (
            f"There is no CUDA half: {facts.no_half}",
            f'pip install "haste-keras[cuda]=={facts.haste}"',
        )
    if not facts.driver or not facts.gpus:
        return
    yield from _driver_problems(facts)
    yield from _gpu_problems(facts)


def _driver_problems(facts):
    if facts.half and facts.driver.cuda // 1000 < facts.half.toolkit // 1000:
        needed = _DRIVERS.get(facts.half.toolkit // 1000, "newer")
        yield (
            f"The NVIDIA driver runs CUDA up to {_cuda(facts.driver.cuda)}; the CUDA half is "
            f"built with {_cuda(facts.half.toolkit)} and needs driver {needed} or newer",
            f"update the driver ({_DRIVER_PAGE}; Ubuntu: sudo ubuntu-drivers install)",
        )


def _gpu_problems(facts):
    old = [i for i, gpu in enumerate(facts.gpus) if gpu.capability < OLDEST_GPU]
    for i in old:
        gpu = facts.gpus[i]
        others = ",".join(str(j) for j in range(len(facts.gpus)) if j not in old)
        yield (
            f"GPU {i} ({gpu.name}) has compute capability {gpu.capability[0]}.{gpu.capability[1]}; "
            "GPU kernels need 7.5 or newer" + ("" if others else ", CPU kernels run"),
            f'export CUDA_VISIBLE_DEVICES="{others}"',
        )
    if len(old) == len(facts.gpus):
        return
    build = facts.tensorflow
    if build.cuda is None:
        yield (
            f"TensorFlow {build.version} is built for the CPU and sees no GPU",
            "pip uninstall -y tensorflow-cpu && "
            f'pip install --force-reinstall "tensorflow[and-cuda]=={build.version}"',
        )
    elif not facts.visible_gpus:
        yield (
            f"TensorFlow {build.version} sees no GPU, though the driver has "
            f"{len(facts.gpus)}: its CUDA {build.cuda} libraries are missing",
            f'pip install "tensorflow[and-cuda]=={build.version}"',
        )
