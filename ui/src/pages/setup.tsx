/** How the scheduler is set up: profiles with their plugins and weights, feature gates, and how long plugins take. */
import { Chips, Name, Section, Sign } from "../kit/basics";
import { Bar } from "../kit/bar";
import { NUM, PROSE, Table, TableSection } from "../kit/table";
import { LatestPage } from "../live/latest";
import { count, plural, seconds, visible } from "../text";

interface Profile {
  readonly schedulerName: string;
  readonly percentageOfNodesToScore: number | null;
  readonly points: Readonly<Record<string, readonly string[]>>;
  readonly weights: Readonly<Record<string, number>>;
}

interface Measured {
  readonly plugin: string;
  readonly extensionPoint: string;
  readonly calls: number;
  readonly seconds: number;
}

interface Setup {
  readonly scheduler: boolean;
  readonly release?: string;
  readonly seed?: number | null;
  readonly percentageOfNodesToScore?: number;
  readonly profiles: readonly Profile[];
  readonly featureGates: readonly { readonly name: string; readonly enabled: boolean }[];
  readonly metrics: readonly Measured[];
}

export const SetupPage = () => <LatestPage<Setup> path="setup" pauseMs={5000} show={(setup) => <Shown setup={setup} />} />;

function Shown({ setup }: { setup: Setup }) {
  const gates = setup.featureGates;
  return (
    <>
      <header class="answer">
        <p class="kind">Setup</p>
        <h1>
          {setup.scheduler
            ? `The scheduler decides as kube-scheduler ${visible(setup.release ?? "")}, with ${plural(setup.profiles.length, "profile")}.`
            : "This server runs no scheduler."}
        </h1>
        {setup.scheduler && (
          <p class="certain">
            seed {setup.seed ?? "none"} · nodes to score: {nodesToScore(setup.percentageOfNodesToScore)}
          </p>
        )}
      </header>
      {setup.profiles.map((profile) => (
        <ProfileSection profile={profile} />
      ))}
      {setup.metrics.length > 0 && (
        <Section title="Time of plugins">
          <Bars
            label="Time of plugins"
            rows={setup.metrics.map((one) => [
              `${one.plugin} ${one.extensionPoint}`,
              one.seconds,
              `${seconds(one.seconds)}, ${plural(one.calls, "call")}`,
            ])}
          />
        </Section>
      )}
      <TableSection
        title="Feature gates"
        aside={`${gates.filter((gate) => gate.enabled).length} of ${gates.length} enabled`}
        rows={gates}
        columns={[
          ["Name", (gate) => <Name of={gate.name} class="breaks" />],
          ["State", ({ enabled }) => [<Sign tone={enabled ? "ok" : "idle"} />, enabled ? " enabled" : " disabled"]],
        ]}
      />
    </>
  );
}

function ProfileSection({ profile }: { profile: Profile }) {
  const own = profile.percentageOfNodesToScore;
  const name = visible(profile.schedulerName);
  return (
    <Section title={`Profile ${name}`} aside={own != null && `nodes to score: ${nodesToScore(own)}`}>
      <Table
        label={`Plugins of ${name}`}
        rows={Object.entries(profile.points)}
        columns={[
          ["Extension point", ([point]) => point],
          ["Plugins, in their order", ([, plugins]) => <Chips names={plugins} first={30} />, PROSE],
        ]}
      />
      <Bars label={`Weights of ${name}`} rows={Object.entries(profile.weights).map(([plugin, weight]) => [plugin, weight, count(weight)])} />
    </Section>
  );
}

/** Plugins with an amount each, as a bar and in words. */
function Bars({ label, rows }: { label: string; rows: readonly (readonly [string, number, string])[] }) {
  const largest = Math.max(...rows.map((row) => row[1]));
  return (
    <Table
      label={label}
      rows={rows}
      columns={[
        ["Plugin", ([plugin]) => <Name of={plugin} class="breaks" />],
        ["", ([, value]) => <Bar of={largest} value={value} />],
        ["Amount", ([, , text]) => text, NUM],
      ]}
    />
  );
}

/** kube-scheduler takes 0 for a share that falls with the number of nodes. */
const nodesToScore = (percentage = 0) => (percentage ? `${percentage}%` : "by the number of nodes");
