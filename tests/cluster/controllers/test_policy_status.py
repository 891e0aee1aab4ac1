"""The status of validating policies follows their generation."""

from moorage.cluster.controllers.upkeep.policy_status import PolicyStatus

POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: pairs}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]
  validations: [{expression: "object.spec.replicas > 'x'"}]
"""


def test_a_policy_is_checked_once_for_each_generation(lab):
    cluster = lab(PolicyStatus(), nodes=0)
    cluster.apply(POLICY)
    cluster.settle()
    status = cluster.get("validatingadmissionpolicies", "pairs", "")["status"]
    assert status["observedGeneration"] == 1
    (warning,) = status["typeChecking"]["expressionWarnings"]
    assert warning["fieldRef"] == "spec.validations[0].expression"
    assert "found no matching overload for '_>_' applied to '(int, string)'" in warning["warning"]
    cluster.apply(POLICY.replace("'x'", "1"))
    cluster.settle()
    status = cluster.get("validatingadmissionpolicies", "pairs", "")["status"]
    assert status == {"observedGeneration": 2, "typeChecking": {}}
