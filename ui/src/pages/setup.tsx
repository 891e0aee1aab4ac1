/** How the scheduler is set up: profiles with their plugins and weights, feature gates, and how long plugins take. */
import { useState } from "preact/hooks";
import { Raw } from "../answers/raw";
import { Badge, Chips, Name, Section, Sign } from "../kit/basics";
import { Bar } from "../kit/bar";
import { Command } from "../kit/command";
import { NUM, PROSE, Table, TableSection } from "../kit/table";
import { LatestPage } from "../live/latest";
import { answerOf, useQuestion } from "../live/questions";
import { cluster } from "../live/state";
import { count, percent, plural, visible } from "../text";
import { Waiting } from "./waiting";

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

/** The decisions of the cluster's scheduler that a recorder compared with Moorage's. */
interface Recorded {
  readonly log: string;
  readonly options?: string;
  readonly agreement: {
    readonly compared?: number;
    readonly share?: number | null;
    readonly bindings?: Readonly<Record<string, number>>;
    readonly failures?: Readonly<Record<string, number>>;
    readonly plugins?: Readonly<Record<string, number>>;
    readonly uncompared?: Readonly<Record<string, number>>;
  };
  readonly differences: readonly {
    readonly at: string;
    readonly pod: string;
    readonly node?: string;
    readonly ours?: string;
    readonly plugins?: readonly string[];
  }[];
}

interface Setup {
  readonly recordings?: readonly Recorded[];
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
      {(setup.recordings ?? []).map((recorded) => (
        <Agreement recorded={recorded} />
      ))}
      {setup.profiles.map((profile) => (
        <ProfileSection profile={profile} />
      ))}
      {setup.metrics.length > 0 && (
        <Section title="Time of plugins" aside="in one attempt of ten">
          <Bars
            label="Time of plugins"
            rows={setup.metrics.map((one) => [
              `${one.plugin} ${one.extensionPoint}`,
              one.seconds,
              `${count(one.seconds * 1000)} ms, ${plural(one.calls, "call")}`,
            ])}
          />
        </Section>
      )}
      {cluster.value?.head.asks !== false && <Validation />}
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

/** A configuration to try: what kube-scheduler would say of it, and the profiles that it means. */
function Validation() {
  const [text, setText] = useState("");
  const [asked, run, cancel] = useQuestion<unknown>();
  const ask = () => run((progress, signal) => answerOf({ question: { configuration: text } }, progress, signal));
  return (
    <Section title="Validate a configuration">
      <form class="ask" onSubmit={(event) => (event.preventDefault(), ask())}>
        <label class="lines">
          <span>KubeSchedulerConfiguration or Policy</span>
          <textarea value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <button class="button main" disabled={!text}>
          Validate
        </button>
      </form>
      {asked.state === "done" ? (
        <>
          <p role="status">
            <Badge tone="ok">valid</Badge> with all defaults:
          </p>
          <Raw value={asked.answer} />
        </>
      ) : (
        asked.state !== "idle" && <Waiting asked={asked} what="Validating" cancel={cancel} again={ask} />
      )}
    </Section>
  );
}

/** How far Moorage decides as the recorded scheduler did: as a figure, by plugin, and each difference as a case to repeat. */
function Agreement({ recorded: { log, agreement, differences, options = "" } }: { recorded: Recorded }) {
  const { compared = 0, share, bindings = {}, failures = {}, plugins = {}, uncompared = {} } = agreement;
  const estimated = Object.entries(uncompared).find(([why]) => why.startsWith("not judged"))?.[1] ?? 0;
  const different = (bindings.different ?? 0) + (failures.different ?? 0);
  if (!compared || share == null) {
    return (
      <Section title="Recorded decisions">
        <p>No decision of {visible(log)} was compared.</p>
      </Section>
    );
  }
  const verdicts = [...new Set([...Object.keys(bindings), ...Object.keys(failures)])];
  return (
    <Section title="Recorded decisions" aside={visible(log)}>
      <p class="lead">
        <Sign tone={different ? "risk" : "ok"} /> Moorage agrees with {percent(different ? Math.min(share, 0.9999) : 1, 2)} of {plural(compared + estimated, "decision")}
        {estimated > 0 && `, ${count(estimated)} of them by estimate`}.
      </p>
      <Table
        label="Recorded decisions by verdict"
        rows={verdicts}
        columns={[
          ["Moorage chooses", (verdict) => WORDS[verdict] ?? visible(verdict)],
          ["bindings", (verdict) => count(bindings[verdict] ?? 0), NUM],
          ["failures", (verdict) => count(failures[verdict] ?? 0), NUM],
        ]}
      />
      {Object.keys(uncompared).length > 0 && (
        <p class="small muted">
          Not compared: {Object.entries(uncompared).map(([why, number]) => `${count(number)}: ${visible(why)}`).join("; ")}.
        </p>
      )}
      {different > 0 && <Bars label="Differences by plugin" rows={Object.entries(plugins).map(([plugin, number]) => [plugin, number, count(number)])} />}
      {differences.length > 0 && (
        <Table
          label="Differences"
          rows={[...differences].reverse()}
          first={5}
          columns={[
            ["Last differences", (one) => <Difference one={one} log={log} options={options} />],
          ]}
        />
      )}
    </Section>
  );
}

/** A decision that differs, and the command that cuts it out of the log. */
function Difference({ one, log, options }: { one: Recorded["differences"][number]; log: string; options: string }) {
  const beside = one.node ? ` --beside ${one.node}` : "";
  const by = one.plugins?.length ? ` (${one.plugins.map(visible).join(", ")})` : "";
  return (
    <>
      <p>
        {visible(one.at)} <Name of={one.pod} to="pod" /> went to {one.node ? <Name of={one.node} to="node" /> : "no node"}, Moorage
        chooses {one.ours ? <Name of={one.ours} to="node" /> : "none"}
        {by}
      </p>
      <Command text={`moorage record cut -f ${log} --pod ${one.pod} --at ${one.at}${beside}${options} -o case.json.gz`} />
    </>
  );
}

const WORDS: Readonly<Record<string, string>> = {
  same: "the same node, or the same reasons",
  "equal score": "another node with an equal score",
  "best of a sample": "the best of a possible sample of nodes",
  "same in another order": "the same, with other changes counted earlier or later",
  different: "different",
};

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
      <h3>Weights</h3>
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
