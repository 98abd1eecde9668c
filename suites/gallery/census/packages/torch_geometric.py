# /// script
# dependencies = [
#     "torch_geometric==2.8.1",
#     "xxhash==3.6.0",
#     "aiohttp==3.13.2",
#     "pyparsing==3.2.5",
#     "multidict==6.7.0",
#     "yarl==1.22.0",
#     "aiosignal==1.4.0",
#     "frozenlist==1.8.0",
#     "propcache==0.4.1",
#     "aiohappyeyeballs==2.6.1",
# ]
#
# [tool.gradgate]
# home = "https://github.com/pyg-team/pytorch_geometric"
# framework = "torch"
# no-deps = true
# seconds = 60
# limit = 900
# ///
"""Losses and reversible layers of PyTorch Geometric."""

import torch
from torch_geometric.edge_index import EdgeIndex
from torch_geometric.utils import cross_entropy

torch.manual_seed(0)
edges = torch.tensor([[0, 0, 1, 2], [1, 2, 0, 1]])
cross_entropy.sparse_cross_entropy(torch.randn(3, 4, requires_grad=True), edges)
weight = torch.rand(4, requires_grad=True)
index = EdgeIndex(edges, sparse_size=(3, 3)).sort_by("row")[0]
index.matmul(torch.randn(3, 2, requires_grad=True), weight)
