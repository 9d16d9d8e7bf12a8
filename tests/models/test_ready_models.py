"""The networks of `ag.nn.models` with weights of the same networks in PyTorch, loaded by name."""

import numpy as np
import pytest

import actorgraph as ag

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle
F = torch.nn.functional


class Bottleneck(torch.nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        sizes = [(before, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1)]
        for number, (inputs, outputs, size, step) in enumerate(sizes, 1):
            conv = torch.nn.Conv2d(inputs, outputs, size, step, size // 2, bias=False)
            setattr(self, f"conv{number}", conv)
            setattr(self, f"bn{number}", torch.nn.BatchNorm2d(outputs))
        self.downsample = None
        if stride != 1 or before != 4 * width:
            self.downsample = torch.nn.Sequential(
                torch.nn.Conv2d(before, 4 * width, 1, stride, bias=False),
                torch.nn.BatchNorm2d(4 * width),
            )

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class Basic(torch.nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(width)
        self.conv2 = torch.nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or before != width:
            self.downsample = torch.nn.Sequential(
                torch.nn.Conv2d(before, width, 1, stride, bias=False), torch.nn.BatchNorm2d(width)
            )

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(torch.nn.Module):
    def __init__(self, block, blocks, width, classes, wider):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(width)
        before = width
        for stage, count in enumerate(blocks):
            made = []
            for place in range(count):
                made.append(block(before, width << stage, 2 if stage and not place else 1))
                before = (width << stage) * wider
            setattr(self, f"layer{stage + 1}", torch.nn.Sequential(*made))
        self.fc = torch.nn.Linear(before, classes)

    def forward(self, x):
        x = F.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class LeNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = torch.nn.Conv2d(1, 6, 5, padding=2), torch.nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2 = torch.nn.Linear(400, 120), torch.nn.Linear(120, 84)
        self.fc3 = torch.nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = F.max_pool2d(torch.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


class Layer(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attn = torch.nn.ModuleDict(
            {"c_attn": torch.nn.Linear(width, 3 * width), "c_proj": torch.nn.Linear(width, width)}
        )
        self.mlp = torch.nn.ModuleDict(
            {"c_fc": torch.nn.Linear(width, 4 * width), "c_proj": torch.nn.Linear(4 * width, width)}
        )

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.attn["c_attn"](self.ln_1(x)).split(width, dim=2)
        split = [p.view(batch, length, self.heads, -1).transpose(1, 2) for p in parts]
        looked = F.scaled_dot_product_attention(*split, is_causal=True)
        x = x + self.attn["c_proj"](looked.transpose(1, 2).reshape(batch, length, width))
        active = F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.mlp["c_proj"](active)


class GPT(torch.nn.Module):
    def __init__(self, tokens, length, width, heads, layers):
        super().__init__()
        self.transformer = torch.nn.ModuleDict(
            {
                "wte": torch.nn.Embedding(tokens, width),
                "wpe": torch.nn.Embedding(length, width),
                "h": torch.nn.ModuleList([Layer(width, heads) for _ in range(layers)]),
                "ln_f": torch.nn.LayerNorm(width),
            }
        )
        self.lm_head = torch.nn.Linear(width, tokens, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, index):
        places = torch.arange(index.shape[1])
        x = self.transformer["wte"](index) + self.transformer["wpe"](places)
        for layer in self.transformer["h"]:
            x = layer(x)
        return self.lm_head(self.transformer["ln_f"](x))


def mlp():
    linear = torch.nn.Linear
    return torch.nn.Sequential(linear(6, 5), torch.nn.ReLU(), linear(5, 4))


models = ag.nn.models
CASES = {
    "resnet18": (
        lambda: ResNet(Basic, [2, 2, 2, 2], 8, 7, 1),
        lambda: models.resnet18(width=8, classes=7, dtype="float64"),
        lambda: torch.randn(3, 3, 40, 40),
    ),
    "resnet50": (
        lambda: ResNet(Bottleneck, [3, 4, 6, 3], 4, 7, 4),
        lambda: models.resnet50(width=4, classes=7, dtype="float64"),
        lambda: torch.randn(3, 3, 40, 40),
    ),
    "lenet": (LeNet, lambda: models.LeNet(dtype="float64"), lambda: torch.randn(3, 1, 28, 28)),
    "gpt": (
        lambda: GPT(11, 9, 16, 4, 2),
        lambda: models.GPT(11, 9, 16, 4, 2, dtype="float64"),
        lambda: torch.randint(11, (3, 7)),
    ),
    "mlp": (mlp, lambda: models.MLP(6, 5, 4, dtype="float64"), lambda: torch.randn(5, 6)),
}


@pytest.mark.parametrize("training", [False, True], ids=["evaluating", "training"])
@pytest.mark.parametrize("case", CASES)
def test_outputs_and_gradients_are_those_of_pytorch_with_its_weights(case, training):
    torch.manual_seed(3)
    theirs, ours, inputs = CASES[case]
    module, net, x = theirs().double().train(training), ours().train(training), inputs()
    x = x.double() if x.is_floating_point() else x
    state = {name: value.numpy().copy() for name, value in module.state_dict().items()}
    net.load_state_dict(state)
    y = module(x)
    seed = torch.randn(y.shape).double()
    (y * seed).sum().backward()
    node = ag.Graph().input("x", tuple(x.shape), x.numpy().dtype)
    result = net(node)
    with ag.TapeMachine([(result * seed.numpy()).sum(), result]) as machine:
        run = machine.run_sync({"x": x.numpy()}, backward=True)
    np.testing.assert_allclose(run[result].value, y.detach().numpy(), rtol=1e-8, atol=1e-8)
    for name, parameter in module.named_parameters():
        wanted = parameter.grad.numpy()
        assert np.abs(wanted).max() > 0
        atol = 1e-8 * np.abs(wanted).max()
        np.testing.assert_allclose(run[name].grad, wanted, rtol=1e-7, atol=atol, err_msg=name)
    for name, buffer in module.named_buffers():
        np.testing.assert_allclose(net.state_dict()[name], buffer.numpy(), rtol=1e-8, err_msg=name)
