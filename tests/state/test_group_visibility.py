"""Test that the counts of unheard terms and claims equal those of a list of pods."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.state.unheard_pods import Unheard
from moorage.testing.builders import a_pod

ZONE, HOST = "zone", "host"
#: Topology key → the domain of each of four nodes; 0: the node has no label.
DOMAINS = {ZONE: (1, 1, 2, 0), HOST: (1, 2, 3, 4)}
TERMS = [{"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key} for app in ("web", "db") for key in (ZONE, HOST)]
IN_EXECUTION = "DuringSchedulingIgnoredDuringExecution"

terms_st = st.lists(st.sampled_from(TERMS), max_size=2)
steps_st = st.lists(
    st.tuples(
        st.integers(0, 5), st.integers(0, 3), terms_st, terms_st, terms_st, terms_st, st.booleans(), st.booleans(),
        st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True),
    ),
    max_size=12,
)  # fmt: skip


def with_terms(number, near, apart, liked, disliked, claims):
    weighted = [[{"weight": 3, "podAffinityTerm": term} for term in terms] for terms in (liked, disliked)]
    affinity = {
        "podAffinity": {f"required{IN_EXECUTION}": near, f"preferred{IN_EXECUTION}": weighted[0]},
        "podAntiAffinity": {f"required{IN_EXECUTION}": apart, f"preferred{IN_EXECUTION}": weighted[1]},
    }
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return a_pod(f"p{number}", uid=f"u{number}", affinity=affinity, volumes=volumes)


def counted(pairs):
    return {what: found for what, counts in pairs if (found := {at: counts.of(at) for at in range(6) if counts.of(at)})}


def expected(pods):
    refusing, pulls, uses = {}, {}, Counter()
    for pod, node, scoring, filtering in pods.values():
        weighted = [(1, term) for term in pod.required_affinity] + [*pod.preferred_affinity]
        weighted += [(-weight, term) for weight, term in pod.preferred_anti_affinity]
        kinds = [(refusing, [(term, term) for term in pod.required_anti_affinity], filtering)]
        kinds.append((pulls, [((weight, term), term) for weight, term in weighted], scoring))
        for found, terms, ignored in kinds:
            for what, term in terms if ignored else ():
                domain = DOMAINS[term.topology_key][node]
                if domain:
                    found.setdefault(what, Counter())[domain] += 1
        uses.update(use.key for use in pod.volumes.claims) if pod.volumes is not None else None
    return refusing, pulls, uses


@settings(max_examples=60, deadline=None)
@given(steps_st)
def test_counts_equal_those_of_a_list_of_pods(steps):
    unheard, pods = Unheard(), {}
    for number, node, near, apart, liked, disliked, scoring, filtering, claims in steps:
        pod = with_terms(number, near, apart, liked, disliked, claims)
        if pod.uid in pods:
            unheard.discard(pod.uid)
            del pods[pod.uid]
        else:
            unheard.add(pod, lambda key, node=node: DOMAINS[key][node], scoring=scoring, filtering=filtering)
            unheard.add_user(pod)
            pods[pod.uid] = pod, node, scoring, filtering
        refusing, pulls, uses = expected(pods)
        assert counted(unheard.anti_affinity()) == refusing
        assert counted(((weight, term), counts) for weight, term, counts in unheard.pulls(7) if weight != 7) == {
            what: found for what, found in pulls.items() if what[0] != 1
        }
        assert counted((term, counts) for weight, term, counts in unheard.pulls(7) if weight == 7) == {
            term: found for (weight, term), found in pulls.items() if weight == 1
        }
        assert not any(weight == 7 for weight, _, _ in unheard.pulls(0))
        assert [unheard.claim_uses(f"default/{name}") for name in "ab"] == [uses["default/a"], uses["default/b"]]
