"""The order of the package's folders: which imports which (haste_keras/README.md)."""

import pathlib
import re

import pytest

import haste_keras

PACKAGE = pathlib.Path(haste_keras.__file__).parent
# {folder: folders that its files may import}; a folder may also import itself.
BELOW = {
    "native": {"_compat"},
    "ops": {"native", "_compat"},
    "layers": {"ops", "native", "_compat"},
    "formats": {"serving", "layers", "ops", "native", "_compat"},
    "serving": {"layers", "ops", "native", "_compat"},
    "reference": set(),
}


@pytest.mark.parametrize("folder", BELOW)
def test_a_folder_imports_from_those_below(folder):
    pattern = re.compile(r"^\s*from haste_keras(?:\.(\w+)\S*)? import (.+)$", re.M)
    files = list((PACKAGE / folder).rglob("*.py"))
    assert files
    for file in files:
        for package, names in pattern.findall(file.read_text()):
            imported = {package} if package else set(re.findall(r"\w+", names))
            assert imported <= BELOW[folder] | {folder}, (file.name, imported)


def test_what_layers_share_imports_none_of_them():
    pattern = re.compile(r"haste_keras\.layers\b(?!\.base\b)")
    for file in (PACKAGE / "layers/base").glob("*.py"):
        assert not pattern.search(file.read_text()), file.name


def test_private_names_are_imported_in_one_file():
    private = re.compile(r"^\s*(from|import) (keras\.src|tensorflow\.python)", re.M)
    with_some = [each.name for each in PACKAGE.rglob("*.py") if private.search(each.read_text())]
    assert with_some == ["_compat.py"]
