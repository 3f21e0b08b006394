"""Real model classes, tiny and random: resident output == offloaded output, on the CPU and the simulated device."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from omni_dlo import OffloadConfig, Offloader, SimulatedDevice

transformers = pytest.importorskip("transformers", reason="needs transformers: pip install transformers")
diffusers = pytest.importorskip("diffusers", reason="needs diffusers: pip install diffusers")

# Its monitor thread would outlive the tests.
pytest.importorskip("tqdm", reason="needs tqdm, which transformers brings").tqdm.monitor_interval = 0

pytestmark = pytest.mark.limit_s(300)


def llama() -> tuple[nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=48, intermediate_size=96, num_hidden_layers=5, num_attention_heads=3, num_key_value_heads=3,
        vocab_size=64, max_position_embeddings=64, tie_word_embeddings=True,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    return model, {"input_ids": torch.arange(12).reshape(2, 6)}


def pixart() -> tuple[nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    model = diffusers.PixArtTransformer2DModel(
        num_layers=4, num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=8,
        cross_attention_dim=16, sample_size=8, caption_channels=16, use_additional_conditions=False,
    ).eval()  # fmt: skip
    inputs = {
        "hidden_states": torch.randn(2, 4, 8, 8),
        "encoder_hidden_states": torch.randn(2, 5, 16),
        "timestep": torch.tensor([3, 3]),
        "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
    }
    return model, inputs


def flux() -> tuple[nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    model = diffusers.FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=2, num_single_layers=3, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8),
    ).eval()  # fmt: skip
    inputs = {
        "hidden_states": torch.randn(1, 16, 4),
        "encoder_hidden_states": torch.randn(1, 7, 32),
        "pooled_projections": torch.randn(1, 32),
        "timestep": torch.tensor([1.0]),
        "img_ids": torch.zeros(16, 3),
        "txt_ids": torch.zeros(7, 3),
    }
    return model, inputs


def t5() -> tuple[nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    config = transformers.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=4, num_heads=4, vocab_size=64)
    return transformers.T5EncoderModel(config).eval(), {"input_ids": torch.arange(10).reshape(1, 10)}


def clip() -> tuple[nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    config = transformers.CLIPTextConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, vocab_size=64,
        max_position_embeddings=16, eos_token_id=2, bos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    return transformers.CLIPTextModel(config).eval(), {"input_ids": torch.arange(10).reshape(1, 10)}


MODELS = pytest.mark.parametrize("make", [llama, pixart, flux, t5, clip])
Make = Callable[[], tuple[Any, dict[str, Any]]]


def call(model: nn.Module, inputs: dict[str, Any]) -> torch.Tensor:
    return model(**inputs)[0].clone()


def configs() -> list[OffloadConfig]:
    return [
        OffloadConfig(device="cpu", resident_blocks=1),
        OffloadConfig(device=SimulatedDevice(), buffers=1),
        OffloadConfig(device=SimulatedDevice(), resident_blocks=2),
        OffloadConfig(device=SimulatedDevice(), host="staged", staging_bytes=4096),
    ]


@MODELS
@pytest.mark.parametrize("config", configs(), ids=["cpu", "one buffer", "resident", "staged"])
def test_equal_outputs_and_a_module_as_before(make: Make, config: OffloadConfig, tmp_path: pathlib.Path) -> None:
    model, inputs = make()
    expected = call(model, inputs)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with Offloader(model, config) as offloader:
        assert offloader.stats().buffer_bytes > 0
        for _ in range(2):
            assert torch.equal(call(model, inputs), expected)
        assert model.device.type == "cpu"
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, before[name]), name
        twin = copy.deepcopy(model)
        assert type(twin) is type(make()[0])
        model.save_pretrained(tmp_path)
        assert torch.equal(call(model, inputs), expected)
    assert torch.equal(call(twin, inputs), expected)
    for name, tensor in type(model).from_pretrained(tmp_path).state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert torch.equal(call(model, inputs), expected)
    assert list(model.state_dict()) == list(before)


@MODELS
@pytest.mark.parametrize("kind", ["cpu", "simulated"])
def test_an_exception_in_every_block_then_a_retry(make: Make, kind: str) -> None:
    model, inputs = make()
    expected = call(model, inputs)
    device = SimulatedDevice() if kind == "simulated" else "cpu"
    with Offloader(model, OffloadConfig(device=device)) as offloader:
        blocks = [name for stack in offloader.explain().stacks for name in stack.streamed]
        for name in blocks:
            block = model.get_submodule(name)
            handle = next(child for child in block.modules() if child._parameters).register_forward_pre_hook(_raise)
            with pytest.raises(RuntimeError, match="on purpose"):
                call(model, inputs)
            handle.remove()
            assert torch.equal(call(model, inputs), expected), name


def _raise(module: nn.Module, arguments: object) -> None:
    raise RuntimeError("on purpose")


def test_generate_gives_the_same_text() -> None:
    model, _ = llama()
    prompt = torch.tensor([[1, 5, 9]])
    expected = model.generate(prompt, max_new_tokens=8, do_sample=False)
    with Offloader(model, OffloadConfig(device="cpu")):
        assert torch.equal(model.generate(prompt, max_new_tokens=8, do_sample=False), expected)
    with Offloader(model, OffloadConfig(device=SimulatedDevice(), resident_blocks=1)):
        assert torch.equal(model.generate(prompt, max_new_tokens=8, do_sample=False), expected)


def test_both_lists_of_flux_are_found_and_the_embeddings_stay() -> None:
    model, _ = flux()
    text = str(Offloader(model, OffloadConfig(device="cpu", resident_blocks=1)).explain())
    assert "transformer_blocks: 2 blocks" in text
    assert "single_transformer_blocks: 3 blocks" in text


def test_tied_embeddings_stay_tied() -> None:
    model, _ = llama()
    with Offloader(model, OffloadConfig(device=SimulatedDevice())):
        assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model.lm_head.weight is model.model.embed_tokens.weight
