"""Fine-tune a classifier with the Trainer of transformers.

python trainer_classification.py MODEL TRAIN.tsv VALIDATION.tsv TEST.tsv OUTPUT
"""

import sys

import numpy as np
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

name, train, validation, test, output = sys.argv[1:]
files = {"train": train, "validation": validation, "test": test}
data = load_dataset("csv", data_files=files, delimiter="\t", quoting=3)
tokenizer = AutoTokenizer.from_pretrained(name)
data = data.map(lambda rows: tokenizer(rows["sentence"], truncation=True, max_length=64), batched=True)
model = AutoModelForSequenceClassification.from_pretrained(name, num_labels=2)
arguments = TrainingArguments(
    output,
    num_train_epochs=3,
    per_device_train_batch_size=32,
    per_device_eval_batch_size=64,
    learning_rate=1e-4,
    warmup_steps=20,
    weight_decay=0.01,
    train_sampling_strategy="group_by_length",
    eval_strategy="epoch",
    save_strategy="epoch",
    save_total_limit=1,
    load_best_model_at_end=True,
    metric_for_best_model="accuracy",
    report_to="none",
    seed=1,
)
trainer = Trainer(
    model,
    arguments,
    train_dataset=data["train"],
    eval_dataset=data["validation"],
    processing_class=tokenizer,
    compute_metrics=lambda scored: {"accuracy": np.mean(scored.predictions.argmax(-1) == scored.label_ids)},
)
trainer.train()
trainer.save_model()
print("accuracy", trainer.evaluate(data["test"], metric_key_prefix="test")["test_accuracy"])
