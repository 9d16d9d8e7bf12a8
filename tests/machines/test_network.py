"""Which network a run gets, and which networks a machine drops."""

from types import SimpleNamespace

from actorgraph.machines.network import Networks


def run(network, plan=None):
    return SimpleNamespace(network=network, plan=plan)


def networks_of(*plans):
    """Return networks of three workers' machine, one for each of these plans."""
    found = Networks(SimpleNamespace(workers=3))
    found.update(enumerate(SimpleNamespace(plan=plan, replica=0) for plan in plans))
    return found


def test_what_a_run_uses_is_not_dropped_and_all_others_are():
    networks = networks_of("a", "b", "a", "c")
    networks.drop_idle([run(networks[2]), run(networks[3])])
    assert [*networks] == [2, 3]


def test_networks_of_a_plan_that_was_replaced_are_dropped_and_no_others():
    networks = networks_of("old", "new", "old")
    networks.drop_idle([run(networks[0])], plan="old")
    assert [*networks] == [0, 1]


def test_runs_of_a_sequence_go_to_the_replica_that_fewest_of_them_use():
    first, second, third = [SimpleNamespace(replica=number) for number in range(3)]
    networks, runs = networks_of(), []
    for expected, network in ((0, first), (1, second), (2, third), (0, first), (1, third)):
        assert networks._least_used("plan", runs) == expected
        runs += [run(network, "plan"), run(second, "another")]
    assert networks._least_used("plan", runs) == 1
