"""The model, its training step, and parts of the step."""

import time

import keras
import numpy as np
import tensorflow as tf

import haste_keras


@tf.custom_gradient
def _with_dense_gradient(table):
    return tf.identity(table), tf.convert_to_tensor


class DenseEmbedding(keras.layers.Embedding):
    """An embedding whose gradient is one tensor as large as the table, and no tf.IndexedSlices.

    Slices of several replicas are gathered, not added: more is sent, and each optimizer sorts them.
    """

    def call(self, inputs):
        table = _with_dense_gradient(tf.convert_to_tensor(self.embeddings))
        return tf.cast(tf.gather(table, inputs), self.compute_dtype)


class CompiledReplica(keras.Sequential):
    """A model whose replicas XLA compiles, forward and backward.

    With a strategy, fit does not compile: XLA has no sum over several GPUs. This compiles all that
    is before the sum.
    """

    @tf.function(jit_compile=True)
    def _loss_and_gradients(self, x, y):
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            # The replica's share of the mean over the whole batch.
            loss = self.compute_loss(x=x, y=y, y_pred=y_pred, training=True)
        return loss, tape.gradient(loss, self.trainable_weights)

    def train_step(self, data):
        x, y = data
        loss, gradients = self._loss_and_gradients(x, y)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        return {"batch_loss": loss * tf.distribute.get_strategy().num_replicas_in_sync}


def make_model(case, sizes):
    """Embedding, two LSTMs, Dense; compiled."""
    keras.utils.set_random_seed(1)
    lstm = haste_keras.LSTM if case.who == "ours" else keras.layers.LSTM
    embedding = DenseEmbedding if case.dense else keras.layers.Embedding
    model = (CompiledReplica if case.compiled else keras.Sequential)(
        [
            keras.Input((sizes.time,), dtype="int32"),
            embedding(sizes.words, sizes.features),
            lstm(sizes.units, return_sequences=True),
            lstm(sizes.units, return_sequences=True),
            keras.layers.Dense(sizes.words),
        ]
    )
    model.compile(
        keras.optimizers.Adam(1e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        # What fit chooses by itself compiles everything; here each replica is compiled.
        jit_compile=False if case.compiled else case.jit,
        steps_per_execution=case.steps,
    )
    return model


def make_dataset(batch, sizes):
    """Endless batches of random words and the words that follow, from the host's memory."""
    count = max(4 * batch, 512)
    words = np.random.default_rng(0).integers(0, sizes.words, (count, sizes.time + 1), np.int32)
    dataset = tf.data.Dataset.from_tensor_slices((words[:, :-1], words[:, 1:]))
    dataset = dataset.repeat().batch(batch, drop_remainder=True).prefetch(4)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return dataset.with_options(options)


def seconds_of_fit(model, dataset, steps, seconds):
    """Seconds of a step inside fit, without what a call of fit costs; and the last loss."""

    def fit(count):
        start = time.perf_counter()
        history = model.fit(dataset, steps_per_epoch=count, shuffle=False, verbose=0)
        return time.perf_counter() - start, next(iter(history.history.values()))[-1]

    fit(2 * steps)  # traces, compiles
    few = steps * max(1, 5 // steps)
    once, _ = fit(few)
    twice, _ = fit(2 * few)
    estimate = max((twice - once) / few, 1e-4)
    count = steps * int(np.clip(seconds / estimate / 4 / steps, 1, 1000))
    once, _ = fit(count)
    more, loss = fit(3 * count)
    # On a machine with other work the difference may be no time at all.
    return max((more - once) / (2 * count), more / (6 * count)), loss


def seconds_of(function, seconds):
    """Seconds a call; the device computes all of them before the clock stops."""

    def run(count):
        start = time.perf_counter()
        for _ in range(count):
            result = function()
        tf.nest.map_structure(lambda t: t.numpy(), result)
        return time.perf_counter() - start

    run(2)
    count = int(np.clip(seconds / max(run(3) / 3, 1e-5), 3, 300))
    return run(count) / count


def _scalar_of(tensors):
    """A scalar that needs all `tensors`: a graph keeps what it is computed from."""
    flat = [t.values if isinstance(t, tf.IndexedSlices) else t for t in tensors]
    return tf.add_n([tf.cast(tf.reshape(t, [-1])[0], tf.float32) for t in flat])


def part_functions(model, strategy, batch, sizes):
    """{part of the step: function of no arguments that runs it on all replicas}.

    All of them read a batch that is on the devices already.
    """
    rng = np.random.default_rng(0)
    shape = (batch, sizes.time)

    def words(_):
        return tf.constant(rng.integers(0, sizes.words, shape, np.int32))

    x = strategy.experimental_distribute_values_from_function(words)
    y = strategy.experimental_distribute_values_from_function(words)

    def gradients(x, y):
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x=x, y=y, y_pred=model(x, training=True), training=True)
        return _scalar_of(tape.gradient(loss, model.trainable_weights))

    def forward(x, y):
        return _scalar_of([model.compute_loss(x=x, y=y, y_pred=model(x, training=True))])

    def summed(dtype, slices=False):
        def run(x, y):
            context = tf.distribute.get_replica_context()
            with tf.device(context.devices[0]):  # NCCL asks for a device by name
                values = [tf.identity(tf.cast(v.value, dtype)) for v in model.trainable_weights]
            if slices:
                flat = tf.reshape(x, [-1])
                table = values[0]
                values[0] = tf.IndexedSlices(tf.gather(table, flat), flat, tf.shape(table))
            return _scalar_of(context.all_reduce(tf.distribute.ReduceOp.SUM, values))

        return run

    parts = {
        "whole step, batch on the device": lambda x, y: _scalar_of(
            list(model.train_step((x, y)).values())
        ),
        "forward": forward,
        "forward and backward": gradients,
    }
    if strategy.num_replicas_in_sync > 1:
        parts["sum over replicas, float32"] = summed(tf.float32)
        parts["sum, embedding as slices"] = summed(tf.float32, slices=True)
        # TensorFlow's NCCL knows no bfloat16.
        parts["sum, float16"] = summed(tf.float16)

    def on_all(function):
        @tf.function
        def run():
            results = strategy.run(function, args=(x, y))
            return strategy.experimental_local_results(results)

        return run

    return {name: on_all(function) for name, function in parts.items()}
