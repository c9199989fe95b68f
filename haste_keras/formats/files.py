"""Packages that a format needs, and files that are written as a whole or not at all."""

import importlib
import os
import tempfile


def needed(function, extra, *names):
    """Imports the packages `names`, which the extra `extra` of haste-keras installs.

    Returns:
      list of modules.
    Raises:
      ImportError: one is missing; the message has the command.
    """
    modules = []
    for name in names:
        try:
            modules.append(importlib.import_module(name))
        except ImportError as error:
            raise ImportError(
                f"haste_keras.{function} needs the package {name.partition('.')[0]}, which is not "
                f'installed or does not import ({error}): pip install "haste-keras[{extra}]"'
            ) from error
    return modules


def check_path(path, suffix):
    """`path` as a str. Raises ValueError if no file can be written there."""
    path = os.fspath(path)
    if os.path.isdir(path):
        raise ValueError(f"`path` must be a {suffix} file, but {path} is a folder")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise ValueError(f"`path` must be in a folder that there is. Received: path={path!r}")
    return path


def write_whole(path, data):
    """Writes the bytes `data` to `path`, where there is all of it or what was there before."""
    folder, name = os.path.split(path)
    handle, work = tempfile.mkstemp(prefix=f".{name}.", dir=folder or ".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(work, 0o666 & ~umask)  # mkstemp's files are for their owner alone
        os.replace(work, path)
    except BaseException:
        os.unlink(work)
        raise
