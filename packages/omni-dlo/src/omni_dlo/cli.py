"""The ``omni-dlo`` command."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from omni_dlo.errors import OffloadError
from omni_dlo.folder import ModelShape, read_folder
from omni_dlo.planner import Hardware, Prediction, best
from omni_dlo.report import chrome_trace, render_text
from omni_dlo.units import format_bytes, format_seconds, parse_bytes, parse_rate

ROWS = 12
"""Most rows of the table; between the ends it shows evenly spread choices."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="omni-dlo", prog_name="omni-dlo")
def main() -> None:
    """Run models larger than the device: plan what would stay, what would stream, and what it costs."""


@main.command()
@click.argument("model_dir", type=click.Path(path_type=Path))
@click.option("--device-memory", required=True, metavar="SIZE", help="Memory for weights, such as 24GiB.")
@click.option("--h2d", required=True, metavar="RATE", help="Host-to-device rate of pinned memory, such as 25GB/s.")
@click.option(
    "--compute",
    default="1TB/s",
    show_default=True,
    metavar="RATE",
    help="Weight bytes that compute passes through in a second: at batch 1 the device's memory bandwidth.",
)
@click.option("--block-ms", type=click.FloatRange(min=0, min_open=True), help="Measured time of the largest block.")
@click.option("--buffers", default=2, show_default=True, type=click.IntRange(1, 16), help="Rotating buffers.")
@click.option("--component", metavar="NAME", help="Which component of a pipeline streams.")
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), help="Write a Chrome trace of one step here.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan(
    model_dir: Path,
    device_memory: str,
    h2d: str,
    compute: str,
    block_ms: float | None,
    buffers: int,
    component: str | None,
    trace: Path | None,
    as_json: bool,
) -> None:
    """Predict memory and stalls of MODEL_DIR, a diffusers or transformers folder, and the best resident_blocks.

    Only the headers of its safetensors files are read. The prediction plays the offloader's own schedule on a clock.
    """
    try:
        shape = read_folder(model_dir, component)
        largest = max(nbytes for stack in shape.stacks for nbytes in stack.block_bytes)
        pace = parse_rate(compute) if block_ms is None else largest / (block_ms / 1e3)
        hardware = Hardware(parse_bytes(device_memory), parse_rate(h2d), pace)
        chosen, every = best(shape, hardware, buffers)
        if trace is not None:
            trace.write_text(chrome_trace(chosen.spans), encoding="utf-8")
    except OffloadError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    if as_json:
        click.echo(json.dumps(_as_object(shape, hardware, chosen, every)))
        return
    _print(Console(), shape, hardware, chosen, every)
    if trace is not None:
        click.echo(f"trace of one step in {trace}: open it in chrome://tracing or ui.perfetto.dev")


def _print(
    console: Console, shape: ModelShape, hardware: Hardware, chosen: Prediction, every: list[Prediction]
) -> None:
    blocks = sum(len(stack.block_bytes) for stack in shape.stacks)
    console.print(
        Text(
            f"{shape.name}: {format_bytes(shape.whole_bytes)}, {shape.parameters / 1e6:,.0f} M parameters, "
            f"{blocks} blocks"
        )
    )
    for stack in shape.stacks:
        size = format_bytes(max(stack.block_bytes))
        console.print(Text(f"  {stack.name}: {len(stack.block_bytes)} blocks of up to {size}"))
    console.print(Text(f"  outside its blocks, always on the device: {format_bytes(shape.outside_bytes)}"))
    for name, nbytes in shape.on_demand:
        console.print(Text(f"  {name}: {format_bytes(nbytes)}, on the device only while it runs"))
    table = Table(title="One step", title_justify="left")
    for column in ("resident_blocks", "device", "moved", "step", "stall", ""):
        table.add_column(column, justify="left" if not column else "right")
    for one in _some(every, chosen):
        note = "best" if one is chosen else "" if one.fits(hardware) else "does not fit"
        stall = f"{100 * one.stall_s / one.step_s:.0f} %" if one.step_s else "–"
        table.add_row(
            str(one.resident_blocks),
            format_bytes(one.device_bytes),
            format_bytes(one.moved_bytes),
            format_seconds(one.step_s),
            stall,
            note,
            style="bold" if one is chosen else None if one.fits(hardware) else "dim",
        )
    console.print(table)
    console.print(Text(render_text(chosen.spans, width=min(72, console.width - 12))))
    left = hardware.memory_bytes - chosen.device_bytes
    console.print(
        Text(
            f"OffloadConfig(resident_blocks={chosen.resident_blocks}): {format_bytes(chosen.device_bytes)} of weights on the "
            f"device, {format_bytes(left)} left for activations."
        )
    )


def _some(every: list[Prediction], chosen: Prediction) -> list[Prediction]:
    """The ends, the chosen one, and evenly spread ones between."""
    step = max(1, -(-len(every) // (ROWS - 2)))
    wanted = {*range(0, len(every), step), len(every) - 1, chosen.resident_blocks}
    return [one for one in every if one.resident_blocks in wanted]


def _as_object(shape: ModelShape, hardware: Hardware, chosen: Prediction, every: list[Prediction]) -> dict[str, object]:
    def row(one: Prediction) -> dict[str, object]:
        found = {name: value for name, value in asdict(one).items() if name != "spans"}
        return found | {"fits": one.fits(hardware)}

    return {
        "model": asdict(shape) | {"whole_bytes": shape.whole_bytes},
        "hardware": asdict(hardware),
        "best": row(chosen),
        "choices": [row(one) for one in every],
    }
