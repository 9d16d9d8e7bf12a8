"""The status page at `/`, as headless Chromium shows it."""

import json
from contextlib import ExitStack, closing

import pytest

from tests import _browser
from tests.serving.test_command import REQUEST, Process

pytestmark = pytest.mark.oracle
MODELS = """
import anyio
import actorgraph as ag

async def forever(xp, x):
    await anyio.sleep_forever()

waits = ag.ops.define("page_waits", scheme="f[*s] -> f[*s]", forward=forever)

def build():
    server = ag.serving.Server()
    x = ag.Graph().input("x", ("rows", 2), "float64")
    server.add("net", {"y": ag.ops.tanh(x * 2.0)})
    z = ag.Graph().input("x", ("rows", 2), "float64")
    server.add("slow", {"y": waits(z)}, max_concurrent_batches=1)
    return server
"""
LIVE = """(() => {
    const cells = {};
    for (const row of document.querySelector("table").rows)
        cells[row.cells[0].textContent] = [...row.cells].map(cell => cell.textContent);
    const of = (model, column) => cells[model][cells["model"].indexOf(column)];
    const node = document.querySelector('[data-node^="tanh"] > rect');
    const busy = getComputedStyle(node).fill.match(/rgba\\(255, 120, 0, (.+)\\)/);
    const ok = Number(of("net 1", "ok"));
    sessionStorage.first ??= ok;
    fetch("/v2/models/net/infer", {method: "POST", body: BODY});  // the next look shows one more
    return ok > Number(sessionStorage.first)
        && of("slow 1", "running") == "1 / 64" && of("slow 1", "waiting") == "2 / 100"
        && Number(of("net 1", "p99 ms")) > 0 && busy && Number(busy[1]) > 0;
})()"""


def test_the_page_shows_models_queues_times_and_busy_nodes_and_asks_nobody_else(tmp_path):
    file = tmp_path / "models.py"
    file.write_text(MODELS)
    body = json.dumps(json.dumps(REQUEST))
    with Process(f"{file}:build").serving() as process, ExitStack() as held:
        for _ in range(3):
            held.enter_context(closing(connection := process.connect()))
            connection.request("POST", "/v2/models/slow/infer", json.dumps(REQUEST))
        browser = held.enter_context(_browser.started())
        browser.open(f"http://127.0.0.1:{process.port}/")
        browser.until(LIVE.replace("BODY", body))
        assert browser.faults() == []
        assert "Busiest of net" in browser.ask("document.body.innerText")
