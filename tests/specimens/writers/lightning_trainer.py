"""PyTorch Lightning's Trainer with its ModelCheckpoint callback, as most scripts have it.

python lightning_trainer.py write OUTPUT_DIR
python lightning_trainer.py resume OUTPUT_DIR     # fit(ckpt_path=$CKPT_LAST_PATH)
"""

from __future__ import annotations

import json
import os
import sys

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset


class Tiny(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.first = None

    def on_train_start(self):
        self.first = self.trainer.global_step

    def training_step(self, batch, _):
        return self.layer(batch[0]).sum()

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters())
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}


def main(verb, output_dir):
    lightning.seed_everything(0)
    newest = {"monitor": "step", "mode": "max", "save_top_k": 2}
    keep = ModelCheckpoint(output_dir, "{epoch}-{step}", every_n_train_steps=1, save_last=True, **newest)
    last = 10 if verb == "write" else 12
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=last,
        callbacks=[keep] if verb == "write" else [],
        enable_checkpointing=verb == "write",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Tiny()
    loader = DataLoader(TensorDataset(torch.ones(16, 4)), batch_size=2)
    trainer.fit(model, loader, ckpt_path=os.environ.get("CKPT_LAST_PATH") if verb == "resume" else None)
    print(json.dumps({"first_step": model.first, "last_step": trainer.global_step}))


if __name__ == "__main__":
    main(*sys.argv[1:])
