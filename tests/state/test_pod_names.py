"""Names of pods in two levels answer as one dictionary of namespaces and names would."""

from hypothesis import given
from hypothesis import strategies as st

from moorage.state.pod_names import PodNames
from moorage.testing.builders import a_pod

spaces, names, uids = st.sampled_from("ab"), st.sampled_from("pqr"), st.sampled_from("1234")


@given(st.lists(st.tuples(st.booleans(), spaces, names, uids), max_size=20))
def test_names_are_put_and_dropped(changes):
    found, plain = PodNames(), {}
    for puts, space, name, uid in changes:
        if puts:
            found.put(space, name, uid)
            plain[space, name] = uid
        else:
            found.drop(space, name, uid)
            if plain.get((space, name)) == uid:
                del plain[space, name]
        assert found.get(space, name) == plain.get((space, name))
    assert {(space, name): uid for space, name, uid in found} == plain
    assert found.uids() == set(plain.values())


@given(st.lists(st.tuples(spaces, names, uids), max_size=4), st.lists(st.tuples(spaces, names, uids), max_size=4))
def test_new_names_are_those_of_no_other_pod(known, more):
    found = PodNames()
    for one in known:
        found.put(*one)
    pods = [a_pod(name, uid=uid, metadata={"namespace": space}).pod for space, name, uid in more]
    taken = {one[:2] for one in known} & {one[:2] for one in more}
    twice = len({one[:2] for one in more}) < len(more) or len({uid for *_, uid in more}) < len(more)
    new = found.of_new(pods)
    assert (new is None) == bool(taken or twice)
    if new is not None:
        found.take(new)
        assert {one[:2]: one[2] for one in [*known, *more]} == {(space, name): uid for space, name, uid in found}
