"""Train a classifier on a few texts with SetFit (Tunstall et al. 2022).

python setfit_classification.py MODEL TRAIN.tsv TEST.tsv SEED OUTPUT
"""

import sys

from datasets import load_dataset
from setfit import SetFitModel, Trainer, TrainingArguments
from sklearn.metrics import accuracy_score

name, train, test, seed, output = sys.argv[1:]
data = load_dataset("csv", data_files={"train": train, "test": test}, delimiter="\t", quoting=3)
trainer = Trainer(
    SetFitModel.from_pretrained(name),
    TrainingArguments(output, batch_size=16, num_epochs=1, num_iterations=20, report_to="none", seed=int(seed)),
    train_dataset=data["train"],
    eval_dataset=data["test"],
    metric=accuracy_score,
    column_mapping={"sentence": "text", "label": "label"},
)
trainer.train()
print("accuracy", trainer.evaluate()["metric"])
trainer.model.save_pretrained(output)
