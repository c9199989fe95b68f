"""Peers whose weights are bfloat16 or int8, as their users make them from a float32 layer.

Of PyTorch: the layer in torch.bfloat16, the float32 layer under torch.autocast, and
quantize_dynamic. Of ONNX Runtime: onnxruntime.quantization.quantize_dynamic, which makes
DynamicQuantizeLSTM of an LSTM and leaves a GRU as it is. Where the processor has no VNNI its
weights have 7 bits (reduce_range, as its documentation says): with 8 its products saturate.
"""

import pathlib
import platform
import tempfile
import warnings

import numpy as np

from benchmarks.cpu import peers


def make(name, dtype, weights, x):
    """{name: peers.Peer} of the installed peers that have the layer in `dtype` and run it here.

    (PyTorch's autocast of an LSTM needs a processor with AVX-512.)

    Args:
      name: "LSTM" or "GRU".
      dtype: "bfloat16" or "int8".
      weights: kernel, recurrent kernel and bias of a Keras layer, float32.
      x: [N, T, C], float32.
    """
    installed, made = peers.installed(), {}
    if "torch" in installed:
        made.update((_torch_bfloat16 if dtype == "bfloat16" else _torch_int8)(name, weights, x))
    if "ort" in installed and dtype == "int8":
        made.update(_onnxruntime_int8(name, weights, x))
    return {who: peer for who, peer in made.items() if _runs(who, peer)}


def _runs(who, peer):
    try:
        peer.infer()
    except RuntimeError as error:
        print(f"{who} cannot run here: {str(error).splitlines()[0]}")
        return False
    return True


def _torch_peer(infer):
    return peers.Peer(infer, lambda y: [y.float().numpy().swapaxes(0, 1)])


def _torch_bfloat16(name, weights, x):
    import torch

    x = torch.from_numpy(np.ascontiguousarray(x.swapaxes(0, 1)))
    layer = peers.torch_layer(name, weights)
    narrow_layer, narrow_x = peers.torch_layer(name, weights).bfloat16(), x.bfloat16()

    def infer():
        with torch.inference_mode():
            return narrow_layer(narrow_x)[0]

    def infer_autocast():
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            return layer(x)[0]

    return {"torch bf16": _torch_peer(infer), "autocast": _torch_peer(infer_autocast)}


def _torch_int8(name, weights, x):
    import torch

    model = torch.nn.Sequential(peers.torch_layer(name, weights))
    kinds = {torch.nn.LSTM, torch.nn.GRU}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is deprecated
        model = torch.ao.quantization.quantize_dynamic(model, kinds, dtype=torch.qint8)
    x = torch.from_numpy(np.ascontiguousarray(x.swapaxes(0, 1)))

    def infer():
        with torch.inference_mode():
            return model(x)[0]

    return {"torch int8": _torch_peer(infer)}


def _saturates():
    """Whether ONNX Runtime adds products of int8 up in 16 bits here: x86-64 without VNNI."""
    if platform.machine() != "x86_64":
        return False
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    return "avx512_vnni" not in flags and "avx_vnni" not in flags


def _onnxruntime_int8(name, weights, x):
    import onnx
    from onnxruntime import quantization

    with tempfile.TemporaryDirectory() as folder:
        source, result = (pathlib.Path(folder, each) for each in ("float32.onnx", "int8.onnx"))
        onnx.save(peers.onnx_model(name, weights, x), source)
        quantization.quantize_dynamic(source, result, reduce_range=_saturates())
        model = onnx.load(result)
    if "DynamicQuantizeLSTM" not in {node.op_type for node in model.graph.node}:
        return {}
    session = peers.onnx_session(model.SerializeToString())
    feed = {"X": np.ascontiguousarray(x.swapaxes(0, 1))}
    output = session.get_outputs()[0].name
    infer = peers.Peer(lambda: session.run([output], feed)[0], lambda y: [y[:, 0].swapaxes(0, 1)])
    return {"ort int8": infer}
