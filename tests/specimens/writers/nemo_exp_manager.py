"""NeMo's experiment manager around a Lightning training: it makes the checkpoint callback and finds where to resume.

python nemo_exp_manager.py write LOG_DIR
python nemo_exp_manager.py resume LOG_DIR [exp_manager.resume_if_exists=True exp_manager.resume_from_checkpoint=PATH]
"""

from __future__ import annotations

import json
import sys

import lightning.pytorch as lightning
import torch
from nemo.utils.exp_manager import exp_manager
from omegaconf import OmegaConf
from torch.utils.data import DataLoader, TensorDataset


class Tiny(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.first = None

    def on_train_start(self):
        self.first = self.trainer.global_step

    def training_step(self, batch, _):
        loss = self.layer(batch[0]).sum()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


def configuration(log_dir, options):
    return OmegaConf.merge(
        {
            "exp_manager": {
                "explicit_log_dir": log_dir,
                "name": "tiny",
                "create_tensorboard_logger": False,
                "create_checkpoint_callback": True,
                "log_step_timing": False,
                "checkpoint_callback_params": {
                    "monitor": "step",
                    "mode": "max",
                    "save_top_k": 2,
                    "every_n_train_steps": 1,
                    "every_n_epochs": None,
                    "save_last": True,
                    "save_nemo_on_train_end": False,
                    "filename": "tiny--{loss:.2f}-{step}",
                },
            }
        },
        OmegaConf.from_dotlist([option.replace("\\=", "=") for option in options]),
    ).exp_manager


def main(verb, log_dir, *options):
    lightning.seed_everything(0)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=10 if verb == "write" else 12,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    exp_manager(trainer, configuration(log_dir, options))
    model = Tiny()
    trainer.fit(model, DataLoader(TensorDataset(torch.ones(16, 4)), batch_size=2))
    print(json.dumps({"first_step": model.first, "last_step": trainer.global_step}))


if __name__ == "__main__":
    main(*sys.argv[1:])
