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
# "transformers.integrations.bitnet:*" = "quantisation with a straight-through gradient"
# ///
"""Activations, roundings and gates of models of transformers."""

import torch
from transformers.integrations import bitnet
from transformers.models.bloom import modeling_bloom as bloom
from transformers.models.ibert import quant_modules as ibert
from transformers.models.phimoe import modeling_phimoe as phimoe
from transformers.models.recurrent_gemma import modeling_recurrent_gemma as gemma
from transformers.models.reformer import modeling_reformer as reformer
from transformers.models.sew_d import modeling_sew_d as sew

torch.manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, requires_grad=True)


bloom.GeLUFunction.apply(normal(3, 5))
gemma.SqrtBoundDerivative.apply(torch.rand(3, 5, requires_grad=True))
sew.XSoftmax.apply(normal(3, 5), torch.ones(3, 5), -1)
for rule in (ibert.floor_ste, ibert.round_ste, bitnet.WeightQuant, bitnet.ActQuant):
    rule.apply(normal(3, 5))
ibert.SymmetricQuantFunction.apply(normal(3, 5), 8, False, torch.tensor(0.1))
order = torch.tensor([[[2, 0, 1]]])
reformer.ReverseSort.apply(normal(1, 1, 3, 4), normal(1, 1, 3), order, torch.tensor([[[1, 2, 0]]]))
phimoe.PhimoeMultiplier.apply(normal(3, 4), normal(3, 1), torch.tensor([[0], [3], [1]]), normal(3, 4).softmax(-1), torch.ones(3, 1).bool())
