"""Fine-tune a language model on a text with the SFTTrainer of TRL.

python trl_language_model.py MODEL TRAIN.txt OUTPUT
"""

import sys
from pathlib import Path

from datasets import Dataset
from trl import SFTConfig, SFTTrainer

name, text, output = sys.argv[1:]
config = SFTConfig(
    output,
    max_length=256,
    packing=True,
    packing_strategy="wrapped",
    num_train_epochs=1,
    per_device_train_batch_size=8,
    learning_rate=5e-4,
    lr_scheduler_type="cosine",
    warmup_steps=40,
    weight_decay=0.1,
    bf16=False,
    gradient_checkpointing=False,
    save_strategy="no",
    report_to="none",
    seed=1,
)
trainer = SFTTrainer(name, config, train_dataset=Dataset.from_dict({"text": [Path(text).read_text(encoding="utf-8")]}))
trainer.train()
trainer.save_model()
