/** The attempts to place a pod that the page saw, and the count that the server knows. */
import { Section, Sign, SmallText } from "../kit/basics";
import { Table } from "../kit/table";
import type { Cluster } from "../live/cluster";
import { clock, plural, visible } from "../text";

export function Attempts({ cluster, pod }: { cluster: Cluster; pod: string }) {
  const seen = cluster.attempts.filter((attempt) => attempt.pod === pod);
  const total = cluster.pods.get(pod)?.attempts ?? 0;
  if (!seen.length && !total) return null;
  return (
    <Section title="Attempts" aside={`${plural(Math.max(total, seen.length), "attempt")}; new ones appear here`}>
      {!seen.length && <SmallText>None since this page was opened.</SmallText>}
      {seen.length > 0 && (
        <Table
          label="Attempts"
          rows={[...seen].reverse()}
          first={20}
          columns={[
            ["Time", (attempt) => clock(attempt.at)],
            [
              "Result",
              (attempt) => (
                <>
                  <Sign tone={attempt.node ? "ok" : "no"} /> {visible(attempt.result)}
                  {attempt.node && ` on ${visible(attempt.node)}`}
                </>
              ),
            ],
          ]}
        />
      )}
    </Section>
  );
}
