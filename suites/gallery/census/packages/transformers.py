# /// script
# dependencies = ["transformers==5.24.0"]
#
# [tool.gradgate]
# home = "https://github.com/huggingface/transformers"
# framework = "torch"
# no-deps = true
# seconds = 60
# limit = 900
#
# [tool.gradgate.by-design]
# "transformers.models.ibert.*" = "quantisation with a straight-through gradient"
# ///
"""Roundings of I-BERT in transformers."""

import torch
from transformers.models.ibert import quant_modules as ibert

torch.manual_seed(0)
for rule in (ibert.floor_ste, ibert.round_ste):
    rule.apply(2 * torch.randn(3, 5, requires_grad=True))
ibert.SymmetricQuantFunction.apply(torch.randn(3, 5, requires_grad=True), 8, False, torch.tensor(0.1))
