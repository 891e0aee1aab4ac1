/** Why pods are pending, from the events of kube-scheduler. */
import type { PodFields } from "../live/cluster";

/** Return the reasons of an event such as `0/8 nodes are available: 1 Insufficient cpu, 2 node(s) …. preemption: …`. */
export function reasonsOf(message: string): string[] {
  const found = /^\d+\/\d+ nodes are available: (.*?)\.(?: |$)/s.exec(message)?.[1];
  return found ? found.split(/, (?=\d+ )/).sort((a, b) => parseInt(b, 10) - parseInt(a, 10)) : [];
}

/** Return the causes with their pods, the most pods first. */
export function byCause(pods: readonly PodFields[]): [string, PodFields[]][] {
  const causes = new Map<string, PodFields[]>();
  for (const pod of pods) {
    const members = causes.get(pod.cause);
    if (members) members.push(pod);
    else causes.set(pod.cause, [pod]);
  }
  return [...causes].sort((a, b) => b[1].length - a[1].length || (a[0] < b[0] ? -1 : 1));
}

/** Return pods by their workload, or by themselves without one, in the order of the first pod of each. */
export function byWorkload(pods: readonly PodFields[]): [string, PodFields[]][] {
  const found = new Map<string, PodFields[]>();
  for (const pod of pods) {
    const name = pod.owner ? `${pod.key.split("/")[0]}/${pod.owner}` : pod.key;
    const members = found.get(name);
    if (members) members.push(pod);
    else found.set(name, [pod]);
  }
  return [...found];
}
