"""Trainers attach in one line to other people's loops: small real runs whose patterns move."""

import math
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
from torch import nn

from sparsetile.nn import Linear, sparsify_
from sparsetile.train import DynSparse, RigL

STEPS = 8


def layers_of(model):
    return {n: m for n, m in model.named_modules() if isinstance(m, Linear)}


def weights(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def moved_at(trainer, steps, patterns, model):
    """The run updated after these steps, and every layer's pattern is another one now."""
    assert [update.step for update in trainer.history] == steps
    assert all(update.total > 0 for update in trainer.history)
    for name, layer in layers_of(model).items():
        assert layer.pattern != patterns[name], name


def patterns_of(model):
    return {name: layer.pattern for name, layer in layers_of(model).items()}


def net():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
    return sparsify_(model, density=0.25, blocksize=4)


def batches(count, size=8):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(size, 32, generator=generator) for _ in range(count)]


# --- A plain loop ---------------------------------------------------------------------------------


def test_a_plain_loop_with_accumulation_clipping_and_groups():
    model = net()
    before = patterns_of(model)
    rates = (1e-2, 1e-3) * 2
    groups = [{"params": [p], "lr": lr} for p, lr in zip(model.parameters(), rates, strict=True)]
    optimizer = torch.optim.AdamW(groups)
    trainer = DynSparse(total_steps=STEPS, every=2).attach(model, optimizer)
    norms = []
    for step, x in enumerate(batches(3 * STEPS)):
        ((model(x) - x).square().mean() / 3).backward()
        if step % 3 == 2:
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.05))
            optimizer.step()
            optimizer.zero_grad()
    assert min(norms) > 0.05  # so clipping did something
    assert trainer.step_count == STEPS
    moved_at(trainer, [2, 4, 6], before, model)


def test_frozen_layers_stay_as_they_are():
    model = net()
    model[0].requires_grad_(False)
    frozen = weights(model[0])
    optimizer = torch.optim.Adam(model.parameters())
    trainer = DynSparse(total_steps=STEPS, every=2).attach(model, optimizer)
    for x in batches(STEPS):
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        optimizer.step()
    assert list(trainer.history[0].moved) == ["2"]
    assert_same(weights(model[0]), frozen)


def test_bfloat16_autocast_trains_float32_weights():
    model = net()
    before = patterns_of(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    trainer = RigL(total_steps=STEPS, every=2).attach(model, optimizer)
    for x in batches(STEPS):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = model(x)
        assert y.dtype == torch.bfloat16
        optimizer.zero_grad()
        (y.float() - x).square().mean().backward()
        optimizer.step()
    assert model[0].values.dtype == torch.float32
    moved_at(trainer, [2, 4], before, model)


def test_steps_that_a_scaler_skips_are_no_steps():
    model = net()
    before = patterns_of(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    trainer = DynSparse(total_steps=STEPS, every=2).attach(model, optimizer)
    # The first scales overflow float16.
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22)
    skipped = 0
    for x in batches(STEPS + 6):
        with torch.autocast("cpu", dtype=torch.float16):
            y = model(x)
        optimizer.zero_grad()
        scaler.scale((y - x).square().mean()).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scale = scaler.get_scale()
        scaler.update()
        skipped += scaler.get_scale() < scale
    assert 0 < skipped < 7
    assert trainer.step_count == STEPS + 6 - skipped
    assert [update.step for update in trainer.history] == [2, 4, 6]
    moved_at(trainer, [2, 4, 6], before, model)


def test_averaged_weights_move_along():
    model, decay = net(), 0.75
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    trainer = DynSparse(total_steps=STEPS, every=2).attach(model, optimizer)
    ema = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(decay)
    )
    trainer.follow(ema.module)
    for i, x in enumerate(batches(STEPS)):
        past = ema.module[0].to_linear().weight
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        optimizer.step()
        ema.update_parameters(model)
        now = model[0].to_linear().weight
        # What was dropped is gone from the average, what is new begins at zero in it.
        want = decay * past * model[0].pattern.to_mask() + (1 - decay) * now if i else now
        torch.testing.assert_close(ema.module[0].to_linear().weight, want)
    assert trainer.history and ema.module[2].pattern == model[2].pattern


# --- Hugging Face Trainer -------------------------------------------------------------------------


def bert():
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(
        BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
                   intermediate_size=64, max_position_embeddings=16)
    )  # fmt: skip


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=64,
            n_positions=16,
            n_embd=32,
            n_layer=1,
            n_head=2,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


class Tokens(torch.utils.data.Dataset):
    def __init__(self):
        self.ids = torch.randint(64, (64, 16), generator=torch.Generator().manual_seed(2))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def sparse(make):
    torch.manual_seed(0)
    return sparsify_(make(), density=0.25, blocksize=4)


def hf_trainer(model, folder, save="no", batch=4, **options):
    import transformers

    args = transformers.TrainingArguments(
        str(folder), max_steps=STEPS, per_device_train_batch_size=batch, learning_rate=1e-2,
        gradient_accumulation_steps=2, report_to=[], disable_tqdm=True, use_cpu=True,
        logging_strategy="no", save_strategy=save, save_steps=3, seed=3,
        dataloader_pin_memory=False,
    )  # fmt: skip
    return transformers.Trainer(model, args, train_dataset=Tokens(), **options)


@pytest.mark.parametrize("make", [bert, gpt2])
def test_hugging_face_trainer_with_its_own_optimizer(make, tmp_path):
    hf = hf_trainer(sparse(make), tmp_path)
    trainer = DynSparse(total_steps=STEPS, every=2).attach(hf.model, hf.create_optimizer())
    before = patterns_of(hf.model)
    hf.train()
    assert trainer.step_count == STEPS
    moved_at(trainer, [2, 4, 6], before, hf.model)


def test_a_hugging_face_run_by_epochs_has_the_steps_that_the_page_counts(tmp_path):
    hf = hf_trainer(sparse(gpt2), tmp_path, batch=10)
    hf.args.max_steps, hf.args.num_train_epochs = -1, 1.5
    per_epoch = -(-len(hf.get_train_dataloader()) // hf.args.gradient_accumulation_steps)
    steps = math.ceil(hf.args.num_train_epochs * per_epoch)
    trainer = DynSparse(total_steps=steps, updates=5).attach(hf.model, hf.create_optimizer())
    hf.train()
    assert trainer.step_count == steps == 6
    assert [update.step for update in trainer.history] == [2, 3, 4, 5]


def test_hugging_face_trainer_with_an_optimizer_of_ours(tmp_path):
    model = sparse(gpt2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    trainer = RigL(total_steps=STEPS, every=2).attach(model, optimizer)
    before = patterns_of(model)
    hf_trainer(model, tmp_path, optimizers=(optimizer, None)).train()
    assert trainer.step_count == STEPS
    moved_at(trainer, [2, 4], before, model)


def test_a_hugging_face_run_resumes_bit_for_bit(tmp_path):
    runs = []
    # From the start, from between updates, and from right after one.
    for checkpoint in (None, tmp_path / "checkpoint-3", tmp_path / "checkpoint-6"):
        hf = hf_trainer(sparse(bert), tmp_path, save="steps")
        trainer = DynSparse(total_steps=STEPS, every=2).attach(hf.model, hf.create_optimizer())
        hf.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        assert trainer.step_count == STEPS
        runs.append((trainer.history, weights(hf.model)))
    for history, resumed in runs[1:]:
        assert history == runs[0][0]
        assert_same(resumed, runs[0][1])


def test_accelerate_hands_out_a_wrapper_that_can_be_attached_to():
    import accelerate

    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer = accelerator.prepare(model, optimizer)
    assert type(optimizer) is not torch.optim.AdamW
    trainer = DynSparse(total_steps=STEPS, every=2).attach(model, optimizer)
    before = patterns_of(model)
    for x in batches(2 * STEPS):
        with accelerator.accumulate(model):
            accelerator.backward((model(x) - x).square().mean())
            optimizer.step()
            optimizer.zero_grad()
    assert trainer.step_count == STEPS
    moved_at(trainer, [2, 4, 6], before, model)


# --- Lightning ------------------------------------------------------------------------------------


def lightning_module(method):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net()
            self.norms = []

        def training_step(self, batch):
            return (self.net(batch) - batch).square().mean()

        def on_before_optimizer_step(self, optimizer):
            self.norms.append(nn.utils.get_total_norm([p.grad for p in self.net.parameters()]))

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            self.sparse = method.attach(self, optimizer)
            return optimizer

    return Module()


def lightning_fit(module, folder, accumulate=1, **resume):
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    saver = ModelCheckpoint(folder, filename="{step}", every_n_epochs=1, save_top_k=-1)
    trainer = lightning.Trainer(
        max_steps=STEPS, accumulate_grad_batches=accumulate, gradient_clip_val=0.05,
        accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[saver], default_root_dir=folder,
    )  # fmt: skip
    # Short epochs: Lightning itself resumes exactly between epochs only.
    loader = torch.utils.data.DataLoader(batches(accumulate), batch_size=None)
    trainer.fit(module, loader, **resume)
    return module


LIGHTNING_NOISE = pytest.mark.filterwarnings(
    # An old name of torch's, few workers, and checkpoints beside those of the run before.
    "ignore:.isinstance.treespec, LeafSpec:FutureWarning",
    "ignore:The .* does not have many workers",
    "ignore:Checkpoint directory .* exists and is not empty",
)


@LIGHTNING_NOISE
def test_lightning_with_accumulation_and_clipping(tmp_path):
    module = lightning_module(DynSparse(total_steps=STEPS, every=2))
    before = patterns_of(module)
    lightning_fit(module, tmp_path, accumulate=2)
    assert module.sparse.step_count == STEPS
    assert min(module.norms) > 0.05  # so clipping did something
    moved_at(module.sparse, [2, 4, 6], before, module)


@LIGHTNING_NOISE
@pytest.mark.parametrize("at", [3, 4])
def test_a_lightning_run_resumes_bit_for_bit(at, tmp_path):
    method = RigL(total_steps=STEPS, every=2)
    whole = lightning_fit(lightning_module(method), tmp_path)
    checkpoint = tmp_path / f"step={at}.ckpt"
    resumed = lightning_fit(lightning_module(method), tmp_path, ckpt_path=checkpoint)
    assert len(whole.norms) - len(resumed.norms) == at
    assert [update.step for update in resumed.sparse.history] == [2, 4]
    assert resumed.sparse.history == whole.sparse.history
    assert_same(weights(resumed), weights(whole))
