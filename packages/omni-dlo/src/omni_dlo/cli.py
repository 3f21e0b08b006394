"""``omni-dlo``: what a model would need, before anyone buys a card."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table

from omni_dlo.checkpoint import ModelSizes, read_model
from omni_dlo.errors import OffloadError
from omni_dlo.planner import Machine, PlannedBlock, Prediction, best_resident_blocks, predict
from omni_dlo.report import chrome_trace, render_text
from omni_dlo.units import format_bytes, format_seconds, parse_bytes, parse_rate

__all__ = ["main"]


def _size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    try:
        return parse_bytes(value)
    except OffloadError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def _rate(ctx: click.Context, param: click.Parameter, value: str) -> float:
    try:
        return parse_rate(value)
    except OffloadError as error:
        raise click.BadParameter(str(error), ctx, param) from error


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="omni-dlo", prog_name="omni-dlo")
def main() -> None:
    """Layerwise weight offload: runs models larger than the device.

    Start with `omni-dlo plan MODEL_DIR --device-memory 24GiB`.
    """


@main.command()
@click.argument("model_dir", type=click.Path(path_type=pathlib.Path))
@click.option("--device-memory", callback=_size, required=True, help="Memory of the device, for example 24GiB.")
@click.option("--h2d", callback=_rate, default="25GB/s", show_default=True, help="Host-to-device copy rate.")
@click.option("--reserve", callback=_size, default="2GiB", show_default=True, help="Kept free for activations.")
@click.option("--buffers", type=click.IntRange(1), default=2, show_default=True, help="Rotating device buffers.")
@click.option("--tokens", type=click.IntRange(1), default=4096, show_default=True, help="Tokens in one step.")
@click.option("--tflops", type=click.FloatRange(0, min_open=True), default=100.0, show_default=True,
              help="What the device really reaches, in 10^12 operations a second.")  # fmt: skip
@click.option("--block-ms", type=click.FloatRange(0), default=None,
              help="Compute time of one block, measured; instead of --tokens and --tflops.")  # fmt: skip
@click.option("--resident-blocks", type=click.IntRange(0), default=None, help="Look at this many instead of the best.")
@click.option("--trace", type=click.Path(path_type=pathlib.Path), help="Write a Chrome trace of one step here.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def plan(
    model_dir: pathlib.Path,
    device_memory: int,
    h2d: float,
    reserve: int,
    buffers: int,
    tokens: int,
    tflops: float,
    block_ms: float | None,
    resident_blocks: int | None,
    trace: pathlib.Path | None,
    as_json: bool,
) -> None:
    """Predict memory, stall and the best resident_blocks of the model in MODEL_DIR.

    Only safetensors headers are read. Compute time is estimated as 2 operations per parameter and token, unless
    --block-ms is given.
    """
    try:
        model = read_model(model_dir)
        machine = Machine(device_memory - reserve, h2d)
        blocks = [
            PlannedBlock(
                block.name, block.nbytes,
                block_ms / 1e3 if block_ms is not None else 2 * block.parameters * tokens / (tflops * 1e12),
            )
            for block in model.blocks
        ]  # fmt: skip
        best = best_resident_blocks(blocks, model.outside_bytes, machine, buffers=buffers)
        chosen = best
        if resident_blocks is not None:
            chosen = predict(blocks, model.outside_bytes, machine, resident_blocks=resident_blocks, buffers=buffers)
        shown = chosen or predict(blocks, model.outside_bytes, machine, resident_blocks=0, buffers=buffers)
        if trace is not None:
            trace.write_text(chrome_trace(shown.spans))
        counts = sorted(
            {0, len(blocks) // 4, len(blocks) // 2, 3 * len(blocks) // 4, len(blocks), shown.resident_blocks}
        )
        rows = [
            predict(blocks, model.outside_bytes, machine, resident_blocks=count, buffers=buffers) for count in counts
        ]
    except (OffloadError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps(_as_json(model, best, rows)))
    else:
        _show(model, machine, best, shown, rows)
    if chosen is None or not chosen.fits:
        raise click.ClickException(
            f"{format_bytes(shown.device_bytes)} of weights do not fit into {format_bytes(machine.memory_bytes)} "
            "(device memory less --reserve); use fewer --buffers, a smaller --reserve or another device"
        )


def _as_json(model: ModelSizes, best: Prediction | None, rows: Sequence[Prediction]) -> dict[str, object]:
    def row(p: Prediction) -> dict[str, object]:
        return {
            "resident_blocks": p.resident_blocks, "device_bytes": p.device_bytes, "moved_bytes": p.moved_bytes,
            "compute_s": p.compute_s, "transfer_s": p.transfer_s, "step_s": p.step_s, "stall_s": p.stall_s,
            "fits": p.fits,
        }  # fmt: skip

    return {
        "model": model.name,
        "blocks": len(model.blocks),
        "total_bytes": model.total_bytes,
        "best": row(best) if best is not None else None,
        "rows": [row(p) for p in rows],
    }


def _show(
    model: ModelSizes, machine: Machine, best: Prediction | None, shown: Prediction, rows: Sequence[Prediction]
) -> None:
    console = Console()
    largest = max(block.nbytes for block in model.blocks)
    console.print(
        f"[bold]{model.name}[/bold]: {len(model.blocks)} blocks, largest {format_bytes(largest)}; "
        f"{format_bytes(model.outside_bytes)} outside them, {format_bytes(model.total_bytes)} in all"
    )
    table = Table()
    for heading in ("resident_blocks", "device memory", "moved a step", "compute", "step", "stall", "fits"):
        table.add_column(heading, justify="right")
    for p in rows:
        mark = " ← best" if best is not None and p.resident_blocks == best.resident_blocks else ""
        table.add_row(
            f"{p.resident_blocks}{mark}", format_bytes(p.device_bytes), format_bytes(p.moved_bytes),
            format_seconds(p.compute_s), format_seconds(p.step_s), format_seconds(p.stall_s), "yes" if p.fits else "no",
        )  # fmt: skip
    console.print(table)
    console.print(f"One step with resident_blocks={shown.resident_blocks} ({format_seconds(shown.step_s)}):")
    width = max(20, min(console.width - 12, 100))
    # Copies of a step's first blocks began during the step before; the picture starts with its first compute.
    console.print(render_text(shown.spans, width), highlight=False, markup=False)
