"""Whole networks."""

from actorgraph.nn.models.gpt import GPT
from actorgraph.nn.models.lenet import LeNet
from actorgraph.nn.models.mlp import MLP
from actorgraph.nn.models.resnet import ResNet, resnet18, resnet50

__all__ = ["GPT", "LeNet", "MLP", "ResNet", "resnet18", "resnet50"]
__dir__ = __all__.copy
