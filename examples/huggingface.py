"""Text classification with the Hugging Face Trainer, 30 % of the labels wrong: with and without groups.

It needs `pip install '.[transformers]'` and downloads nothing: a small BERT is made from a configuration.
"""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

from deepbilevel.integrations.transformers import BilevelTrainer
from deepbilevel.rules.cross_validated import CrossValidatedRule

PRAISE, BLAME = ["good", "great", "fine", "lovely", "superb"], ["bad", "poor", "dull", "awful", "weak"]
WORDS = [*PRAISE, *BLAME, "the", "a", "film", "plot", "cast", "was", "is", "very", "and", "with"]


class Reviews(Dataset):
    """Made-up reviews: more words of praise than of blame, or the other way round."""

    def __init__(self, size: int, wrong: float = 0.0) -> None:
        praise = torch.arange(size) % 2
        self.ids = torch.randint(10, 20, (size, 12))
        for row, label in enumerate(praise.tolist()):
            opinion = torch.tensor([0.9, 0.1] if label else [0.1, 0.9]).multinomial(4, replacement=True)
            self.ids[row, torch.randperm(12)[:4]] = 5 * opinion + torch.randint(5, (4,))
        self.labels = torch.where(torch.rand(size) < wrong, 1 - praise, praise)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.ids[index], "labels": self.labels[index]}


def main(epochs: int = 20) -> dict[str, float]:
    """Train twice from the same weights; return both test accuracies."""
    set_seed(0)
    data, test_data = Reviews(1024, wrong=0.3), Reviews(1024)
    print("a review:", *(WORDS[i] for i in data.ids[1]))
    accuracies: dict[str, float] = {}
    for name in ("adamw", "cross-validated"):
        grouped = name != "adamw"
        set_seed(0)
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        config = BertConfig(vocab_size=len(WORDS), **sizes)
        model = BertForSequenceClassification(config)
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                folder,
                num_train_epochs=epochs,
                per_device_train_batch_size=16 if grouped else 128,
                gradient_accumulation_steps=8 if grouped else 1,  # the mini-batches of a group
                learning_rate=3e-3,
                lr_scheduler_type="cosine",
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                use_cpu=True,
            )
            common = {"train_dataset": data, "compute_metrics": accuracy}
            if grouped:
                rule = CrossValidatedRule(shrink="update")  # "gradient" with SGD: Adam would undo it
                trainer = BilevelTrainer(model, arguments, rule=rule, labels=data.labels, **common)
            else:
                trainer = Trainer(model, arguments, **common)
            trainer.train()
            accuracies[name] = trainer.evaluate(test_data)["eval_accuracy"]
    print({name: f"{value:.1%}" for name, value in accuracies.items()})
    return accuracies


def accuracy(prediction) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


if __name__ == "__main__":
    main()
