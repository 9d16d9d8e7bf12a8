"""Where the configuration of a model comes from."""

import pytest

import actorgraph as ag
from tests._each import each
from tests.serving._models import outputs


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "serving.toml"
    path.write_text(
        'max_queued = 20\noverflow = "wait"\nwarmup = 2\n[models.net]\nmax_queued = 10\n'
    )
    return path


def test_a_call_goes_before_the_file_and_the_file_before_the_environment(file, monkeypatch):
    monkeypatch.setenv("ACTORGRAPH_OVERFLOW", "shed_oldest")
    monkeypatch.setenv("ACTORGRAPH_BATCH_WAIT_S", "0.5")
    monkeypatch.setenv("ACTORGRAPH_MAX_BATCH_SIZE", "4")
    with ag.serving.Server(file) as server:
        net = server.add("net", outputs(), warmup=3).config
        other = server.add("other", outputs()).config
    assert (net.warmup, other.warmup) == (3, 2)
    assert (net.max_queued, other.max_queued) == (10, 20)
    assert net.overflow == "wait"
    assert (net.batch_wait_s, net.max_batch_size) == (0.5, 4)
    assert net.max_inflight == ag.serving.Config().max_inflight


def test_what_the_function_of_a_model_says_goes_before_defaults_alone(file, monkeypatch):
    @ag.serving.configured(
        warmup=4, max_queued=5, overflow="shed_oldest", batch_wait_s=0.1, priority_levels=3
    )
    def declared():
        return outputs()

    with ag.serving.Server() as server:
        alone = server.add("net", declared, default_priority=2).config
    monkeypatch.setenv("ACTORGRAPH_BATCH_WAIT_S", "0.5")
    with ag.serving.Server(file) as server:
        net = server.add("net", declared, warmup=3).config
    assert (net.warmup, net.max_queued, net.overflow) == (3, 10, "wait")
    assert (net.batch_wait_s, net.priority_levels) == (0.5, 3)
    assert (alone.warmup, alone.max_queued, alone.overflow) == (4, 5, "shed_oldest")
    assert alone.batch_wait_s == 0.1
    assert (alone.priority_levels, alone.default_priority) == (3, 2)


@pytest.mark.parametrize(
    ("config", "says"),
    [({"max_queue": 3}, "did you mean 'max_queued'"), ({"max_queued": -1}, "at least 0"),
     ({"load_threads": 2}, "load_threads")],
)  # fmt: skip
def test_a_decorator_that_makes_no_sense_is_refused_where_it_stands(config, says):
    with pytest.raises((TypeError, ValueError), match=says):
        ag.serving.configured(**config)


def test_settings_of_a_server_come_from_the_same_places(file, monkeypatch):
    monkeypatch.setenv("ACTORGRAPH_RELOAD_MODE", "watch")
    monkeypatch.setenv("ACTORGRAPH_DRAIN_DELAY_S", "2.5")
    file.write_text("load_threads = 2\nmax_queued = 20\n" + 'reload_mode = "none"')
    found = ag.serving.Server(file, load_threads=3).config
    assert (found.load_threads, found.reload_mode, found.drain_delay_s) == (3, "none", 2.5)


def test_a_setting_of_a_server_is_none_of_a_model():
    with ag.serving.Server() as server, pytest.raises(TypeError, match="unknown keyword 'reload"):
        server.add("net", outputs(), reload_mode="none")
    for keyword, says in (("load_thread", "did you mean 'load_threads'"), ("max_queued", "known")):
        with pytest.raises(TypeError, match=says):
            ag.serving.Server(**{keyword: 1})
    with pytest.raises(ValueError, match="reload_mode must be one of 'none', 'explicit'"):
        ag.serving.Server(reload_mode="poll")


@each(
    "given, says",
    [
        ({"max_queue": 3}, "unknown setting 'max_queue' in the config; did you mean"),
        ({"models": {"net": {"max_queue": 3}}}, "unknown setting 'max_queue'"),
        ({"models": {"net": {"load_threads": 3}}}, "unknown setting 'load_threads' of a model"),
        ({"models": {"net": 3}}, "has to be a table, got 3"),
        ({"models": 3}, "has to be tables, got 3"),
        ("nowhere.toml", "cannot read the config 'nowhere.toml': FileNotFoundError"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_before_anything_is_served(given, says):
    with pytest.raises((TypeError, ValueError), match=says):
        ag.serving.Server(given)


def test_a_file_that_is_no_toml_is_named(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text("max_queued")
    with pytest.raises(ValueError, match=r"bad\.toml': TOMLDecodeError"):
        ag.serving.Server(path)


def test_a_variable_of_the_environment_that_is_no_number_is_named(monkeypatch):
    monkeypatch.setenv("ACTORGRAPH_MAX_QUEUED", "many")
    says = "ACTORGRAPH_MAX_QUEUED in the environment is no int"
    with ag.serving.Server() as server, pytest.raises(ValueError, match=says):
        server.add("net", outputs())


def test_every_setting_of_a_word_has_its_words_and_comes_from_each_place(monkeypatch):
    monkeypatch.setenv("ACTORGRAPH_ACCESS_LOG", "off")
    monkeypatch.setenv("ACTORGRAPH_READINESS", "lenient")
    with ag.serving.Server() as server:
        assert server.config.readiness == "lenient"
        assert server.add("net", outputs()).config.access_log == "off"
    with ag.serving.Server({"access_log": "on", "readiness": "strict"}) as server:
        assert server.config.readiness == "strict"
        assert server.add("net", outputs()).config.access_log == "on"
    for setting, word in (("readiness", "'strict', 'lenient'"), ("reload_policy", "'switch'")):
        with pytest.raises(ValueError, match=f"{setting} must be one of {word}, got 'other'"):
            ag.serving.Server(**{setting: "other"})


@pytest.mark.parametrize("place", ["call", "file", "environment"])
def test_what_a_request_costs_is_told_by_a_function_only(place, monkeypatch):
    config = {"cost_fn": "rows"} if place == "file" else None
    given = {"cost_fn": 3} if place == "call" else {}
    if place == "environment":
        monkeypatch.setenv("ACTORGRAPH_COST_FN", "len")
    with ag.serving.Server(config) as server, pytest.raises(ValueError, match="(?i)cost_fn"):
        server.add("net", outputs(), **given)
