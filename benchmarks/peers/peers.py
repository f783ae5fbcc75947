"""Opacus and diffprivlib on a table of benchmarks/adult.py; run by the peers' own Python, prints JSON.

``python peers.py table.npz epsilon delta``. The settings of Opacus are the best of a small grid by test accuracy at
epsilon = 1, without privacy cost, which favours it.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from importlib.metadata import version

import numpy as np

REPEATS = 3
EPOCHS = 15


def opacus(train, labels, epsilon, delta):
    """DP-SGD with Poisson sampling: 15 passes, batches of 1024, clip 0.5, step 32."""
    import torch
    from opacus import PrivacyEngine

    torch.manual_seed(0)
    torch.set_num_threads(2)
    features = torch.from_numpy(train.astype(np.float32))
    targets = torch.from_numpy(labels.astype(np.float32))
    model = torch.nn.Linear(train.shape[1], 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=32.0)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(features, targets), batch_size=1024)
    model, optimizer, loader = PrivacyEngine().make_private_with_epsilon(
        module=model, optimizer=optimizer, data_loader=loader, target_epsilon=epsilon, target_delta=delta,
        epochs=EPOCHS, max_grad_norm=0.5,
    )  # fmt: skip
    loss = torch.nn.BCEWithLogitsLoss()
    for _ in range(EPOCHS):
        for rows, wanted in loader:
            optimizer.zero_grad()
            loss(model(rows)[:, 0], wanted).backward()
            optimizer.step()
    return model._module.weight.detach().numpy()[0]


def diffprivlib(train, labels, epsilon, delta):
    """Objective perturbation, pure epsilon."""
    from diffprivlib.models import LogisticRegression

    model = LogisticRegression(
        epsilon=epsilon, data_norm=1.0, fit_intercept=False, C=100.0, max_iter=500, random_state=0
    )
    return model.fit(train, labels).coef_[0]


def main() -> None:
    table = np.load(sys.argv[1])
    epsilon, delta = float(sys.argv[2]), float(sys.argv[3])
    warnings.simplefilter("ignore")
    found = {}
    for name, fit in (("opacus", opacus), ("diffprivlib", diffprivlib)):
        try:
            seconds, scores = [], []
            for _ in range(REPEATS):
                start = time.perf_counter()
                coefficients = fit(table["train"], table["train_labels"], epsilon, delta)
                seconds.append(time.perf_counter() - start)
                scores.append(float(((table["test"] @ coefficients > 0) == table["test_labels"]).mean()))
            found[f"{name} {version(name)}"] = {"seconds": seconds, "accuracy": float(np.median(scores))}
        except Exception as error:  # whatever keeps a peer from running is worth a line, not a crash
            found[name] = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
