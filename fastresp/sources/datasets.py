"""Scan pyarrow Datasets, if the scan changes no values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import dataset as ds

from ..outcome.errors import SourceError
from .files.schemas import one_type

__all__ = ["scanned"]

# Formats that store the types of columns. For CSV and JSON, pyarrow infers the types from the
# beginning of each file.
TYPED = ("parquet", "ipc", "arrow", "feather", "orc")


def scanned(dataset: Any) -> Any:
    """Return a reader of the batches of a Dataset.

    Checksums of Parquet pages are compared, unless the user has set scan options. By default, a
    Dataset has the types of its first file, and silently casts the columns of all other files.

    Raises:
        SourceError: a cast would change values of a file, or INT96 timestamps would wrap.
    """
    if not isinstance(dataset, ds.Dataset):
        return dataset.scanner().to_reader()
    plain = ds.ParquetFragmentScanOptions()
    options = set()
    for fragment in dataset.get_fragments():
        if isinstance(fragment, ds.FileFragment) and fragment.format.default_extname in TYPED:
            check_types(fragment, dataset.schema)
            check_int96(fragment)
            options.add(fragment.format.default_fragment_scan_options == plain)
    if options != {True}:  # the user's own options
        return dataset.scanner().to_reader()
    checking = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    return dataset.scanner(fragment_scan_options=checking).to_reader()


def check_types(fragment: Any, schema: Any) -> None:
    """Refuse a file if casting a column to the schema's type would change values."""
    for field in fragment.physical_schema:
        at = schema.get_field_index(field.name)
        if at < 0:
            continue
        wanted = schema.field(at).type
        found, kind = (
            each.value_type if pa.types.is_dictionary(each) else each
            for each in (field.type, wanted)
        )
        if field.type != wanted and one_type(kind, found) != kind:
            raise SourceError(
                f"column {field.name!r} of {fragment.path} is {field.type}, and the Dataset casts "
                f"it to {wanted}; load the files by a pattern, which keeps their types, or pass "
                "dataset.scanner() if that is what you want"
            )


def check_int96(fragment: Any) -> None:
    """Refuse a Parquet file with INT96 timestamps that would wrap when read as nanoseconds."""
    options = getattr(fragment.format, "read_options", None)
    if getattr(options, "coerce_int96_timestamp_unit", None) != "ns":
        return
    columns = fragment.metadata.schema
    for column in map(columns.column, range(len(columns))):
        if column.physical_type == "INT96":
            raise SourceError(
                f"column {column.path!r} of {fragment.path} has INT96 timestamps, which the "
                "Dataset reads as nanoseconds, and years outside 1677 to 2262 wrap; load the files "
                "by a pattern, or create the Dataset with "
                "format=ParquetFileFormat(coerce_int96_timestamp_unit='us')"
            )
