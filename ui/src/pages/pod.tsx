/** One pod of the live cluster: the explanation of its decision, and changes to try. */
import { useEffect, useState } from "preact/hooks";
import { Basis } from "../answers/envelope";
import { ExplanationPage } from "../answers/explanation";
import type { Explanation, Remedy } from "../documents";
import { Badge, Button, Quote, Section, Sign } from "../kit/basics";
import { ask, get, podPath } from "../live/api";
import type { Cluster } from "../live/cluster";
import { answerOf, answerTo, useQuestion } from "../live/questions";
import { version } from "../live/state";
import type { ScoreColumns } from "../ranking";
import { StillCluster } from "../map/still";
import { visible } from "../text";
import { Actions } from "./actions";
import { Waiting } from "./waiting";
import { Attempts } from "./attempts";

export function PodPage({ cluster, pod }: { cluster: Cluster; pod: string }) {
  const [asked, run, cancel] = useQuestion<Explanation>();
  const [first, runFirst] = useQuestion<Explanation>();
  const [scores, setScores] = useState<ScoreColumns>();
  const [askedAt, setAskedAt] = useState("");
  const explain = () => {
    setAskedAt(stateOf(cluster, pod));
    // The cause needs no search: it stands while changes are looked for.
    // A scheduler in the server's process tells it at once; else a process of its own reads the cluster first.
    runFirst((progress, signal) =>
      get<Explanation | undefined>(podPath("pods", pod) + "/cause", signal)
        .catch(() => undefined)
        .then((told) => told ?? answerOf<Explanation>({ question: { explain: pod, probes: 0 } }, progress, signal)),
    );
    run((progress, signal) => answerTo<Explanation>(() => ask(podPath("pods", pod) + "/explanation"), progress, signal));
  };
  useEffect(() => {
    setScores(undefined);
    explain();
  }, [pod, cluster]);
  const early = first.state === "done" && first.answer.answer.pod === pod ? first.answer : undefined;
  const answer = asked.state === "done" ? asked.answer : (asked.state === "running" ? asked.last : undefined) ?? early;
  const searches = answer === early && asked.state !== "done" && early?.answer.outcome !== "placed";
  useEffect(() => {
    if (!answer?.answer.scores) return;
    const control = new AbortController();
    get<ScoreColumns>(podPath("scores", pod), control.signal).then(setScores, () => undefined);
    return () => control.abort();
  }, [answer]);
  void version.value;
  return (
    <main class="page stack">
      {answer && askedAt !== stateOf(cluster, pod) && (
        <p class="notice" role="status">
          The pod has changed since this answer.{" "}
          <Button onClick={explain}>
            Ask again
          </Button>
        </p>
      )}
      {(!answer || searches) && (
        <Waiting
          asked={asked}
          what={answer ? "Looking for changes that would place the pod" : `Explaining ${pod}`}
          cancel={cancel}
          again={explain}
        />
      )}
      {answer && (
        <StillCluster.Provider value={cluster}>
          <ExplanationPage document={answer} scores={scores} offer={(change, first) => <Try key={change.commands.join()} {...{ pod, change, first }} />} />
          <Recorded text={cluster.pods.get(pod)?.recorded ?? ""} />
          <Actions names={pod} of={removals(pod)} />
          <Attempts cluster={cluster} pod={pod} />
          <Basis document={answer} />
        </StillCluster.Provider>
      )}
    </main>
  );
}

/** What the cluster's scheduler wrote when it tried the pod, where Moorage decides otherwise now. */
const Recorded = ({ text }: { text: string }) =>
  text ? (
    <Section title="Recorded in the cluster" aside="differs from what Moorage finds now">
      <p class="small">
        <Sign tone="risk" /> The cluster may have changed since, or its scheduler may be set up otherwise.
      </p>
      <Quote>{text}</Quote>
    </Section>
  ) : null;

/** How the pod leaves: evicted, which respects its budgets, or deleted. */
function removals(pod: string): string[] {
  const [namespace, name] = pod.split("/");
  const eviction = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace } };
  return [
    `kubectl create --raw /api/v1/namespaces/${namespace}/pods/${name}/eviction -f - <<< '${JSON.stringify(eviction)}'`,
    `kubectl delete pod ${name} -n ${namespace}`,
  ];
}

/** What of a pod makes an older answer doubtful. */
function stateOf(cluster: Cluster, key: string): string {
  const pod = cluster.pods.get(key);
  return pod ? `${pod.node} ${pod.state} ${pod.attempts}` : "gone";
}

/** Run a change in a fork and show what the pod's answer is then. */
function Try({ pod, change, first }: { pod: string; change: Remedy; first: boolean }) {
  const [asked, run, cancel] = useQuestion<Explanation>();
  const go = () =>
    run((progress, signal) => answerOf({ question: { explain: pod }, changes: change.atoms }, progress, signal));
  return (
    <div class="try">
      {asked.state !== "done" && asked.state !== "running" && (
        <Button onClick={go} {...(first && { class: "button main" })}>
          {first ? "Try the first change" : "Try"}
        </Button>
      )}
      {(asked.state === "running" || asked.state === "failed") && <Waiting asked={asked} what="Trying" cancel={cancel} again={go} />}
      {asked.state === "done" && (
        <dl class="before-after" aria-live="polite">
          <dt>before</dt>
          <dd>
            <Badge tone="no">{asked.answer.before?.answer.outcome ?? "pending"}</Badge>
          </dd>
          <dt>after</dt>
          <dd>
            <Badge tone={asked.answer.answer.outcome === "placed" ? "ok" : "risk"}>{asked.answer.answer.outcome}</Badge> {visible(asked.answer.summary)}
          </dd>
        </dl>
      )}
    </div>
  );
}

