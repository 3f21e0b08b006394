"""Fetches a dataset from the Hugging Face Hub (extra ``[hub]``)."""

from __future__ import annotations

from pathlib import Path

from omni_duplex_bench.errors import DatasetError


def download(dataset_id: str) -> Path:
    """The path of ``data.tar.gz`` of a dataset if it has one, else of its whole snapshot.

    Raises:
        DatasetError: If the extra is not installed or the Hub does not give it.
    """
    try:
        from huggingface_hub import hf_hub_download, snapshot_download
        from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError
    except ImportError as error:
        raise DatasetError(f"{dataset_id}: to fetch it, install omni-duplex-bench[hub]") from error
    try:
        for name in ("data.tar.gz", "data.tar"):
            try:
                return Path(hf_hub_download(dataset_id, name, repo_type="dataset"))
            except LocalEntryNotFoundError:
                raise
            except EntryNotFoundError:
                continue
        return Path(snapshot_download(dataset_id, repo_type="dataset"))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise DatasetError(f"{dataset_id}: the Hub did not give it: {str(error).splitlines()[0]}") from error
