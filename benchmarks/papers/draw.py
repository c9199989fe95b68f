"""What the plots of benchmarks.papers share."""

import os

import matplotlib
import tensorflow as tf

matplotlib.use("Agg")

# Okabe and Ito's colours, which people with any kind of colour blindness tell apart.
COLORS = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#F0E442"]
MARKERS = "osD^vPX*"


def device():
    """What TensorFlow computes on, in words."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        return tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU")
    return f"{len(os.sched_getaffinity(0))} CPU cores"


def style(i):
    """Colour and marker of the i-th line, as arguments of plot."""
    return {"color": COLORS[i % len(COLORS)], "marker": MARKERS[i % len(MARKERS)], "markersize": 4}


def save(figure, path):
    """Writes the figure and says so."""
    figure.savefig(path, dpi=150)
    print(f"drawn: {path}")
