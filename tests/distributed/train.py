"""Programs of test_strategies.py, a process each: training with a strategy, on CPUs.

    train.py mirrored OUT             one device, then two logical ones, then interrupted
    train.py worker OUT INDEX PORT0 PORT1 [DIE_AT]   one of two workers; TF_CONFIG is made here

Each writes its losses and weights to OUT/*.npz.
"""

import json
import os
import pathlib
import signal
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras
import numpy as np
import tensorflow as tf

import haste_keras

BATCH, STEPS, EPOCHS, WORDS, TIME = 16, 3, 3, 50, 12


def data():
    """The same batches of padded words in the same order in each process and epoch."""
    rng = np.random.default_rng(0)
    x = rng.integers(1, WORDS, (BATCH * STEPS, TIME), np.int32)
    x[np.arange(TIME) >= rng.integers(1, TIME + 1, (len(x), 1))] = 0  # padding: masked
    y = rng.integers(0, 3, len(x))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True)
    return dataset.with_options(options)


def make_model():
    """A mask, both kinds of recurrence; nothing drawn: a new process draws anew."""
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.Input((TIME,), dtype="int32"),
            keras.layers.Embedding(WORDS, 8, mask_zero=True),
            haste_keras.LSTM(12, return_sequences=True, direction="bidirectional"),
            haste_keras.QRNN(12, window=2, return_sequences=True),
            haste_keras.GRU(12),
            keras.layers.Dense(3),
        ]
    )


def compiled():
    """For fit."""
    model = make_model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    return model


class InterruptedFitError(Exception):
    """In the middle of an epoch."""


class Interrupt(keras.callbacks.Callback):
    """Stops training by an error in the second step of the last epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if self._epoch == EPOCHS - 1 and batch == 1:
            raise InterruptedFitError


def save(out, name, model, losses):
    """Writes the weights and the losses."""
    weights = {f"weight{i}": value for i, value in enumerate(model.get_weights())}
    np.savez(out / f"{name}.npz", losses=losses, **weights)


def mirrored(out):
    """fit on one device, on two, and on two with an interruption and a backup."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    arguments = {"epochs": EPOCHS, "shuffle": False, "verbose": 0}
    one = compiled()
    save(out, "one", one, one.fit(data(), **arguments).history["loss"])

    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        two = compiled()
    save(out, "two", two, two.fit(data(), **arguments).history["loss"])

    backup = keras.callbacks.BackupAndRestore(str(out / "backup"))
    with strategy.scope():
        first = compiled()
    try:
        first.fit(data(), callbacks=[backup, Interrupt()], **arguments)
    except InterruptedFitError:
        pass
    else:
        raise AssertionError("it was not interrupted")
    keras.utils.set_random_seed(99)  # nothing of the first run but its backup
    with strategy.scope():
        again = compiled()
        again.set_weights([0 * value for value in again.get_weights()])
    backup = keras.callbacks.BackupAndRestore(str(out / "backup"))
    history = again.fit(data(), callbacks=[backup], **arguments).history
    save(out, "resumed", again, history["loss"])


def worker(out, index, ports, die_at=None):
    """A loop of its own over fit's work, as docs/howto/distributed.md has it."""
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": cluster, "task": {"type": "worker", "index": index}}
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = make_model()
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)
        epoch = tf.Variable(0)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    @tf.function
    def train(batch):
        def one_replica(x, y):
            with tf.GradientTape() as tape:
                losses = loss_of(y, model(x, training=True))
                loss = tf.nn.compute_average_loss(losses, global_batch_size=BATCH)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return strategy.reduce("SUM", strategy.run(one_replica, args=batch), axis=None)

    # Every worker saves, because writing a mirrored variable takes all of them; one is kept.
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epoch=epoch)
    folder = out / ("chief" if index == 0 else f"other{index}")
    manager = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=1)
    chief = tf.train.latest_checkpoint(str(out / "chief"))
    if chief:
        checkpoint.restore(chief)
    begin = int(epoch.numpy())
    print(f"begins with epoch {begin}", flush=True)
    batches = strategy.experimental_distribute_dataset(data())
    losses = []
    for e in range(begin, EPOCHS):
        each = []
        for step, batch in enumerate(batches):
            if (e, step) == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            each.append(float(train(batch)))
        losses.append(np.mean(each))
        epoch.assign(e + 1)
        manager.save()
    save(out, f"worker{index}", model, losses)


def main():
    what, out, *rest = sys.argv[1:]
    tf.config.threading.set_intra_op_parallelism_threads(1)
    out = pathlib.Path(out)
    if what == "mirrored":
        mirrored(out)
    else:
        index, first, second, *dies = (int(word) for word in rest)
        worker(out, index, (first, second), (EPOCHS - 1, 1) if dies else None)


if __name__ == "__main__":
    main()
