"""The base class of our models for transformers: building, loading, resizing, checkpointing and pushing."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from odeum.draws import shapes_only
from odeum.errors import OdeumError
from odeum.fields.attention import SelfAttention, reset
from odeum.fields.base import Context
from odeum.fields.transevolve.linear import LinearFeatures
from odeum.fields.transevolve.rotation import Rotation
from odeum.flow import Stack
from odeum.hf.configuration import OdeumConfig, class_of, write_loader
from odeum.hooks import in_this_thread
from odeum.inspection import attention_weights
from odeum.models import OdeumModel, assemble
from odeum.models.base import IGNORE
from odeum.registry.spelling import parse

CARD = "README.md"


class OdeumPreTrainedModel(PreTrainedModel):
    """An Odeum model, in the attribute `odeum`, with the interface of transformers."""

    config_class = OdeumConfig
    base_model_prefix = "odeum"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_attention_backend = False
    _no_split_modules = ["Flow", "Anchored"]  # noqa: RUF012 (declared so by transformers)
    auto_model: ClassVar[str] = "AutoModel"
    """the class of transformers that loads it"""
    pipeline: ClassVar[str] = ""
    """the task of its model card"""

    def __init__(self, config: OdeumConfig) -> None:
        super().__init__(config)
        if not isinstance(self, (wrapper := class_of(config.kind)) | OdeumBaseModel):
            raise OdeumError(f"{type(self).__name__} cannot wrap a {config.kind} model; use {wrapper.__name__}")
        self.odeum: Any = assemble(parse(config.architecture), config.model_settings())
        self.gradient_checkpointing = False
        self.card: str | None = None
        """the model card, where one is known: written beside the weights, and pushed"""
        self.post_init()

    @classmethod
    def wrap(cls, model: OdeumModel, **config: Any) -> Any:
        """Wraps an existing model without copying it; `config` are fields of OdeumConfig such as id2label."""
        settings = OdeumConfig.of(model, **config)
        with shapes_only():
            out = cls(settings)
        out.odeum = model
        return out.train(model.training)

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """As in transformers; matrices that are drawn from a stored seed are drawn again."""
        out = super().from_pretrained(*args, **kwargs)
        model = out[0] if isinstance(out, tuple) else out
        _restore_buffers(model.odeum)
        for module in model.modules():
            if isinstance(module, Rotation):
                module.draw(int(module.seed))
            elif isinstance(module, LinearFeatures):
                module._draw()
        card = Path(str(args[0] if args else kwargs["pretrained_model_name_or_path"])) / CARD
        model.card = card.read_text(encoding="utf-8") if card.is_file() else None
        return out

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> Any:
        """As in transformers; also writes the model card and a loader for `trust_remote_code=True`."""
        for name in ("run.json", "task.json"):
            if (Path(save_directory) / name).exists():
                raise OdeumError(
                    f"'{save_directory}' holds an Odeum run, whose files would be overwritten; save elsewhere"
                )
        wrapper = class_of(self.config.kind)
        names = {"AutoConfig": OdeumConfig, "AutoModel": OdeumBaseModel, wrapper.auto_model: wrapper}
        if wrapper.__module__.startswith("odeum."):  # a plugin's class is not imported by the loader
            self.config.auto_map = {auto: f"modeling_odeum.{cls.__name__}" for auto, cls in names.items()}
        out = super().save_pretrained(save_directory, *args, **kwargs)
        write_loader(save_directory)
        self._write_card(Path(save_directory))
        return out

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoModel") -> None:
        """Do nothing: transformers would copy the file of this class beside the weights, instead of the loader."""

    def _upload_modified_files(self, working_dir: Any, *args: Any, **kwargs: Any) -> Any:
        self._write_card(Path(working_dir))  # push_to_hub has put a card of its own there
        return super()._upload_modified_files(working_dir, *args, **kwargs)

    def _write_card(self, directory: Path) -> None:
        if self.card is not None:
            (directory / CARD).write_text(self.card, encoding="utf-8")

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Our modules are born with their weights; only what a file did not have (a new head) is made here."""
        fresh = [p for p in module.parameters(recurse=False) if not getattr(p, "_is_hf_initialized", False)]
        if not getattr(self, "_was_meta", False) or not fresh:
            return
        if isinstance(module, nn.Linear):
            reset(module)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
            module.reset_parameters()
        else:
            for parameter in fresh:
                nn.init.trunc_normal_(parameter, std=0.02)

    def post_init(self) -> None:
        self._was_meta = any(p.is_meta for p in self.parameters())
        super().post_init()

    # the embedding, which transformers may make larger

    def get_input_embeddings(self) -> nn.Module:
        embedding = getattr(self.odeum, "embedding", None)
        if not isinstance(embedding, nn.Embedding):
            raise OdeumError(f"{type(self).__name__} has no token embedding that can be returned or resized")
        return embedding

    def set_input_embeddings(self, value: Any) -> None:
        embedding = self.get_input_embeddings()
        embedding.weight, embedding.num_embeddings = value.weight, value.weight.shape[0]  # ours scales what it finds

    def get_output_embeddings(self) -> nn.Module | None:
        return None

    def set_output_embeddings(self, new_embeddings: Any) -> None:
        """An output matrix of its own gets the weights of another; a tied one is the embedding."""
        output: Any = self.get_output_embeddings()
        if output is None:
            raise OdeumError(f"{type(self).__name__} has no separate output matrix: it is tied to the embedding")
        output.weight, output.bias = new_embeddings.weight, new_embeddings.bias
        output.out_features = output.weight.shape[0]

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> Any:
        """As in transformers: rows are added or removed."""
        out = super().resize_token_embeddings(*args, **kwargs)
        vocabulary = self.odeum.embedding.weight.shape[0]
        bias = getattr(self.odeum.embedding, "bias", None)
        if bias is not None:  # of a translation model; new tokens begin without one
            more = vocabulary - bias.shape[0]
            self.odeum.embedding.bias = nn.Parameter(nn.functional.pad(bias.data, (0, more)))
        self.odeum.settings = replace(self.odeum.settings, vocabulary=vocabulary)
        self.config.settings = {**self.config.settings, "vocabulary": vocabulary}
        return out

    def _criterion(self, logits: Tensor, labels: Tensor, items: Any) -> Tensor:
        """The mean loss of a batch; where `items` are said, its share of the mean over so many labels.

        Trainer says them where several batches make one step, and adds up what it gets.
        """
        loss = self.odeum.criterion(logits, labels)
        return loss if items is None else loss * ((labels != IGNORE).sum() / items)

    # running the layers

    def _set_gradient_checkpointing(self, enable: bool = True, *args: Any, **kwargs: Any) -> None:
        super()._set_gradient_checkpointing(enable, *args, **kwargs)
        function: Callable[..., Tensor] | None = self._gradient_checkpointing_func if enable else None
        for stack in self.odeum.children():
            if isinstance(stack, Stack):
                stack.recompute = function

    def _states(
        self, stack: Stack, x: Tensor, context: Context | None, every: bool | None, attentions: bool | None = None
    ) -> BaseModelOutput:
        """The last states and, on request, those before the first layer and after each; the last ones are normed.

        With `attentions` also the weights of every evaluation of an attention, in their order: RK4 has four per layer.
        """
        wanted = self.config.output_attentions if attentions is None else attentions
        with _recorded_attentions(stack, context) if wanted else nullcontext(None) as weights:
            if not (self.config.output_hidden_states if every is None else every):
                states, last = None, stack(x, context)
            else:
                *rest, last = stack.trajectory(x, context)
                last = last if stack.norm is None else stack.norm(last)
                states = (*rest, last)
        output: dict[str, Any] = {"last_hidden_state": last, "hidden_states": states}
        return BaseModelOutput(**output, attentions=None if weights is None else tuple(weights))  # ty: ignore


@contextmanager
def _recorded_attentions(stack: Stack, context: Context | None) -> Generator[list[Tensor]]:
    """Collect the weights of every attention of a pass, which computes them a second time beside its fused kernel."""
    attentions = [part for part in stack.modules() if part.__class__.__name__.endswith("Attention")]
    if not attentions or any(type(part) is not SelfAttention for part in attentions):
        raise OdeumError("output_attentions is not available: this architecture has attention other than softmax(q k)")
    if context is not None and context.own.cache is not None:
        raise OdeumError("output_attentions cannot be combined with a decoding cache; pass use_cache=False")
    weights: list[Tensor] = []

    def record(module: Any, arguments: tuple[Any, ...], out: Tensor) -> None:
        _, x, given = arguments
        if given.own.past is not None and given.own.past.keys:
            raise OdeumError("output_attentions is not available: attention also reads keys of earlier layers")
        weights.append(attention_weights(module, x, given))

    handles = [part.register_forward_hook(in_this_thread(record)) for part in attentions]
    try:
        yield weights
    finally:
        for handle in handles:
            handle.remove()


class OdeumBaseModel(OdeumPreTrainedModel):
    """The states of a model before its head, for models of every kind: what `AutoModel` loads.

    Arguments are those of the class for the kind of model; the head is loaded too, and not used.
    """

    pipeline: ClassVar[str] = "feature-extraction"

    def __init__(self, config: OdeumConfig) -> None:
        super().__init__(config)
        self.main_input_name = class_of(config.kind).main_input_name

    @can_return_tuple
    def forward(self, *args: Any, **kwargs: Any) -> ModelOutput:
        """`last_hidden_state`, and what else the kind of model returns besides its logits."""
        return class_of(self.config.kind).features(self, *args, **kwargs)[0]


@torch.no_grad()
def _restore_buffers(model: OdeumModel) -> None:
    """Buffers that no file holds have no numbers after a load by transformers; they get those of a new model."""
    lost = [(path, name) for path, part in model.named_modules() for name in part._non_persistent_buffers_set]
    if lost:
        new = assemble(model.architecture, model.settings)
        for path, name in lost:
            model.get_submodule(path).get_buffer(name).copy_(new.get_submodule(path).get_buffer(name))


def refuse_attentions(config: PreTrainedConfig, wanted: bool | None) -> None:
    """Raise OdeumError if attention weights are requested, by an argument or by the configuration."""
    if config.output_attentions if wanted is None else wanted:
        raise OdeumError("output_attentions is not available for translation models")
