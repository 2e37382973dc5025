"""Read and write the four file formats, from bytes to bytes, so that what was hashed is what is parsed."""

import gzip
import io

import numpy as np
import pandas as pd

from dpadapt.datasets.provenance import Data


def parse(content: bytes, file: str) -> Data:
    """Turn the content of a parquet, csv, npz or gzipped text file into data."""
    if file.endswith(".parquet"):
        return pd.read_parquet(io.BytesIO(content))
    if file.endswith(".csv"):
        return pd.read_csv(io.BytesIO(content))
    if file.endswith(".npz"):
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    if file.endswith(".txt.gz"):
        return gzip.decompress(content).decode("utf-8")
    raise ValueError(f"file must end in .parquet, .csv, .npz or .txt.gz, got {file!r}.")


def serialise(data: Data) -> tuple[bytes, str]:
    """Turn data into the content of a file, and say with which ending."""
    buffer = io.BytesIO()
    if isinstance(data, pd.DataFrame):
        data.to_parquet(buffer, compression="zstd", index=False)
        return buffer.getvalue(), ".parquet"
    if isinstance(data, str):
        return gzip.compress(data.encode("utf-8"), mtime=0), ".txt.gz"
    np.savez_compressed(buffer, allow_pickle=False, **data)
    return buffer.getvalue(), ".npz"
