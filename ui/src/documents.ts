/** The documents that the commands print, as far as the pages read them (docs/reference/*.schema.json describes them). */

export type Amounts = Readonly<Record<string, number>>;

export interface Envelope<Kind extends string, Answer> {
  readonly apiVersion: string;
  readonly kind: Kind;
  readonly release: string;
  readonly seeds: readonly number[];
  readonly input: {
    readonly digest: string;
    readonly files: readonly string[];
    readonly takenAt?: string;
    readonly notes: readonly string[];
  };
  readonly question: Readonly<Record<string, unknown>> & { readonly changes?: readonly string[] };
  readonly summary: string;
  readonly answer: Answer;
  readonly proof: {
    readonly kind: "exhaustive" | "bound" | "run" | "bounded";
    readonly runs?: number;
    readonly probes?: number;
    readonly lowerBound?: number;
  };
  readonly assumptions: readonly { readonly name: string; readonly value: string }[];
  readonly before?: { readonly summary: string; readonly answer: Answer };
  /** How a search ended early, and what a longer run could still find. */
  readonly stopped?: { readonly reason: "timeLimit" | "interrupted"; readonly limitSeconds?: number; readonly left: readonly string[] };
}

// -- Explanation

export interface Refusal {
  readonly plugin: string;
  readonly reason: string;
  readonly resolvable: boolean;
  readonly stage?: string;
  readonly error?: boolean;
  readonly detail?: string;
  readonly terms?: readonly string[];
  readonly numbers?: Amounts;
}

export interface RefusedGroup {
  readonly nodes: readonly number[];
  readonly refusals: readonly Refusal[];
  readonly nearest: number;
  readonly cost?: number;
}

export interface FunnelStep {
  readonly plugin: string;
  readonly before: number;
  readonly after: number;
  readonly alone: number;
  readonly stage: string;
  readonly skipped: boolean;
}

export interface Atom {
  readonly owner: string;
  readonly verb: string;
  readonly target: string;
  readonly text: string;
  readonly cost: number;
  readonly path: string;
  readonly old: unknown;
  readonly new: unknown;
}

export interface Remedy {
  readonly owner: string;
  readonly cost: number;
  readonly atoms: readonly Atom[];
  readonly commands: readonly string[];
  readonly nodes: readonly number[];
  readonly displaced: readonly string[];
  readonly stranded: readonly string[];
  readonly minimal: boolean;
  readonly alike: readonly string[];
  readonly kind: string;
  readonly who: string;
  readonly effects: readonly string[];
}

/** Changes that would place the pod and that no one should make. */
export interface LeftOut {
  readonly reason: string;
  readonly text: string;
  readonly changes: number;
}

export interface Victim {
  readonly pod: string;
  readonly priority: number;
  readonly budgets?: readonly string[];
  readonly shortOf?: string;
}

export interface PreemptionNode {
  readonly node: number;
  readonly verdict: "notHelpful" | "noLowerPriority" | "notEnough" | "candidate" | "notEvaluated";
  readonly considered: boolean;
  readonly plugin?: string;
  readonly reason?: string;
  readonly victims?: readonly Victim[];
  readonly spared?: readonly string[];
  readonly violations?: number;
  readonly highestPriority?: number;
  readonly prioritySum?: number;
  readonly latestStart?: string;
}

export interface Preemption {
  readonly summary: string;
  readonly nodes?: readonly PreemptionNode[];
  readonly chosen?: number;
  readonly decidedBy?: string;
  readonly notEligible?: string;
  readonly reprieve?: readonly string[];
  readonly lowestPriority?: number;
}

export interface Share {
  readonly plugin: string;
  readonly raw: number;
  readonly normalised: number;
  readonly weight: number;
  readonly contribution: number;
}

export interface NodeTotal {
  readonly node: number;
  readonly rank: number;
  readonly total: number;
  readonly shares: readonly Share[];
}

export interface Flip {
  readonly kind: string;
  readonly text: string;
  readonly to?: number;
  readonly plugin?: string;
  readonly at?: number;
  readonly tiesAt?: number;
}

export interface Scores {
  readonly nodes: readonly NodeTotal[];
  readonly winner: number;
  readonly runnerUp?: number;
  readonly margin: number;
  readonly nearTie: boolean;
  readonly tied: readonly number[];
  readonly split: Readonly<Record<string, number>>;
  readonly flips: readonly Flip[];
  readonly feasible: number;
  readonly refused: number;
  readonly unscored: number;
}

export interface PodState {
  readonly name: string;
  readonly text?: string;
  readonly attempts?: number;
  readonly untilSeconds?: number;
  readonly endedBy?: readonly string[];
  readonly causes?: readonly string[];
  readonly fitsOnceReleased?: boolean;
  readonly nominatedNode?: string;
}

export interface NotCreated {
  readonly namespace: string;
  readonly workload?: string;
  readonly names: readonly string[];
  readonly wanted: number;
  readonly by: string;
  readonly quota?: string;
  readonly message: string;
  readonly resources: readonly {
    readonly resource: string;
    readonly requested: string;
    readonly used: string;
    readonly hard: string;
  }[];
}

export interface ExplanationAnswer {
  readonly pod: string;
  readonly outcome: "pending" | "placed" | "preempts" | "gated" | "notOurs" | "notCreated" | "ended";
  readonly node?: string;
  readonly state: PodState;
  readonly nodes: readonly string[];
  readonly funnel: readonly FunnelStep[];
  readonly groups: readonly RefusedGroup[];
  readonly conflicts: readonly (readonly { readonly plugin: string; readonly term: string }[])[];
  readonly nearestMiss?: { readonly node: number; readonly refusals: readonly Refusal[]; readonly hints: readonly string[] };
  readonly changes: readonly Remedy[];
  readonly leftOut: readonly LeftOut[];
  readonly preemption?: Preemption;
  readonly scores?: Scores;
  readonly message: string;
  readonly notCreated?: NotCreated;
}

export type Explanation = Envelope<"Explanation", ExplanationAnswer>;

// -- Capacity

export interface Stop {
  readonly plugin: string;
  readonly reason: string;
  readonly nodes?: number;
  readonly resource?: string;
  readonly detail?: string;
}

export interface CapacityGroup {
  readonly group: string;
  readonly nodes: readonly string[];
  readonly instances: number;
  readonly each: readonly number[];
  readonly left: Readonly<Record<string, readonly number[]>>;
  readonly stoppedBy: readonly Stop[];
  readonly eligible: boolean;
}

export interface Gain {
  readonly change: "node" | "resource" | "uncordon";
  readonly more: number;
  readonly group?: string;
  readonly resource?: string;
  readonly nodes?: readonly string[];
  readonly proof?: string;
}

export interface Template {
  readonly template: string;
  readonly kind: string;
  readonly requests: Amounts;
  readonly placed: number;
  readonly perUnit: number;
  readonly asked?: number;
  readonly leftOver?: number;
}

export interface CapacityAnswer {
  readonly instances: number;
  readonly perNode: Amounts;
  readonly perGroup: readonly CapacityGroup[];
  readonly failType: string;
  readonly message: string;
  readonly upperBound: number | null;
  readonly binding: readonly Stop[];
  readonly gains: readonly Gain[];
  readonly templates?: readonly Template[];
  readonly exhausted?: Readonly<Record<string, readonly string[]>>;
  readonly stranded?: Amounts;
  readonly bySeed?: { readonly min?: number; readonly max?: number; readonly instances?: Amounts };
  readonly blockedBy?: string;
  readonly unplaced?: readonly string[];
  readonly preempted?: readonly string[];
}

export type Capacity = Envelope<"Capacity", CapacityAnswer>;

// -- NodePlan

export interface NodeSet {
  readonly cost: number;
  readonly nodes: Amounts;
  readonly pending?: Amounts;
  readonly proven?: boolean;
}

export interface PlanAnswer {
  readonly nodes: Amounts;
  readonly cost: number | null;
  readonly lowerBound: number | null;
  readonly verified: Readonly<Record<string, number | null>>;
  readonly gap: number | null;
  readonly status: "optimal" | "gap" | "partial" | "impossible" | "undecided";
  readonly remove: readonly string[];
  readonly moved: readonly { readonly pod: string; readonly source: string; readonly to: string }[];
  readonly blocked: Readonly<
    Record<string, readonly { readonly pod?: string; readonly rule?: string; readonly plugin?: string; readonly text?: string }[]>
  >;
  readonly lost?: readonly string[];
  readonly saved?: number | null;
  readonly perZone?: Readonly<Record<string, Amounts>>;
  readonly boundKind?: string;
  readonly packing?: NodeSet;
  readonly sets?: Readonly<Record<string, NodeSet>>;
  readonly unplaceable?: readonly {
    readonly pods: readonly string[];
    readonly requests: Amounts;
    readonly why: readonly { readonly type: string; readonly plugin: string; readonly reason: string }[];
  }[];
  readonly used?: Readonly<Record<string, { readonly requested: number; readonly allocatable: number }>>;
  readonly preempted?: readonly string[];
  readonly pods?: number;
  readonly left?: readonly { readonly pods: readonly string[]; readonly why: readonly string[]; readonly message: string }[];
}

export type NodePlan = Envelope<"NodePlan", PlanAnswer>;

// -- PodGroupExplanation

export interface GangPart {
  readonly state: "placed" | "fits" | "blocked" | "held" | "absent";
  readonly count: number;
  readonly pods?: readonly string[];
  readonly why?: string;
}

export interface GangDomain {
  readonly name: string;
  readonly nodes: number;
  readonly accepting: number;
  readonly fits: number;
  readonly atMost: number;
  readonly ever: number;
  readonly stops?: Amounts;
  readonly closed?: string;
}

export interface GangWay {
  readonly kind: string;
  readonly text: string;
  readonly placed?: number;
  readonly domain?: string;
  readonly moved?: readonly string[];
  readonly evicted?: readonly string[];
  readonly atLeast?: number;
  readonly commands?: readonly string[];
}

export interface GangAnswer {
  readonly namespace: string;
  readonly name: string;
  readonly state: string;
  readonly minCount?: number;
  readonly pods: number;
  readonly placed: number;
  readonly needed: number;
  readonly priority: number;
  readonly topologyKey?: string;
  readonly largest: number;
  readonly atMost: number;
  readonly domain?: string;
  readonly message?: string;
  readonly parts: readonly GangPart[];
  readonly domains: readonly GangDomain[];
  readonly ways: readonly GangWay[];
}

export type PodGroupExplanation = Envelope<"PodGroupExplanation", GangAnswer>;

// -- DrainReport

export interface DrainedPod {
  readonly pod: string;
  readonly outcome: "moves" | "waits" | "never" | "refused" | "stays" | "lost" | "pending" | "finished";
  readonly origin: string;
  readonly node?: string;
  readonly at?: number;
  readonly budget?: string;
  readonly why?: string;
  readonly replacement?: string;
  readonly evictedSeconds?: number;
  readonly goneSeconds?: number;
  readonly placedSeconds?: number;
}

export interface DrainAnswer {
  readonly possible: boolean;
  readonly refused: readonly { readonly pod: string; readonly rule: string; readonly text: string }[];
  readonly evicted: readonly string[];
  readonly pods: readonly DrainedPod[];
  readonly pending: readonly string[];
  readonly preempted: readonly string[];
  readonly deadlock: boolean;
  readonly nodes: readonly {
    readonly name: string;
    readonly drained: boolean;
    readonly beginSeconds?: number;
    readonly doneSeconds?: number;
    readonly errors: readonly string[];
  }[];
  readonly order: readonly string[];
  readonly readySeconds?: number;
  readonly ifLost?: { readonly moves: number; readonly pending: readonly string[]; readonly lostForGood: readonly string[] };
}

export type DrainReport = Envelope<"DrainReport", DrainAnswer>;

// -- Survival

export interface Failure {
  readonly lost: string;
  readonly nodes: readonly string[];
  readonly pods: number;
  readonly pending: readonly string[];
  readonly lostForGood: readonly string[];
  readonly preempted: readonly string[];
  readonly stuck: readonly string[];
  readonly moves: number;
  /** Of a question about one loss. */
  readonly moved?: readonly { readonly pod: string; readonly source: string; readonly to: string }[];
  readonly byPriority: Amounts;
  readonly pendingCpuMilli: number;
  readonly pendingMemoryBytes: number;
  readonly freeCpuMilli: number;
  readonly freeMemoryBytes: number;
  readonly why?: string;
  readonly sameAs?: string;
}

export interface SurvivalAnswer {
  /** Absent if not every loss was run, and the others are survived. */
  readonly survives?: boolean;
  readonly over?: string;
  readonly mode?: string;
  readonly failures: readonly Failure[];
  readonly worst: readonly string[];
  readonly pendingBefore: readonly string[];
  readonly without: readonly string[];
  readonly fix?: {
    readonly cost: number;
    readonly changes: readonly string[];
    readonly commands: readonly string[];
    readonly notes: readonly string[];
  };
  readonly spare?: { readonly like: string; readonly tried: number; readonly nodes?: number };
}

export type Survival = Envelope<"Survival", SurvivalAnswer>;

// -- Comparison

export interface Metric {
  readonly a: number | null;
  readonly b: number | null;
  readonly difference: number | null;
  readonly interval: readonly [number | null, number | null] | null;
  readonly exact: boolean;
  readonly mayBeZero: boolean;
  readonly p?: number;
}

export interface Run {
  readonly seed: number;
  readonly release: string;
  readonly metrics: Readonly<Record<string, number | null>>;
  readonly pending: readonly { readonly pod: string; readonly workload: string; readonly message: string }[];
}

export interface ComparisonAnswer {
  readonly a: { readonly name: string; readonly notes: readonly string[] };
  readonly b: { readonly name: string; readonly notes: readonly string[] };
  readonly metrics: Readonly<Record<string, Metric>>;
  readonly moved?: {
    readonly pods: number;
    readonly of: number;
    readonly byChance: readonly number[];
    readonly withinGroup: number;
    readonly toAnotherGroup: number;
    readonly toAnotherZone: number;
    readonly perSeed: readonly number[];
  };
  readonly moves: readonly { readonly pod: string; readonly a: string; readonly b: string }[];
  readonly newPending: readonly string[];
  readonly gates: readonly { readonly gate: string; readonly passed: boolean; readonly metric: string; readonly text: string }[];
  readonly runs: { readonly a: readonly Run[]; readonly b: readonly Run[] };
}

export type Comparison = Envelope<"Comparison", ComparisonAnswer>;

// -- Overview

export interface ResourceUse {
  readonly resource: string;
  readonly allocatable: number;
  readonly requested: number;
  readonly free: number;
  readonly utilisation: number;
  readonly sigma: number;
  readonly jain: number;
  readonly stranded: number;
  readonly fragmented: number;
}

export interface Place {
  readonly name: string;
  readonly nodes: number;
  readonly counted: number;
  readonly pods: number;
  readonly dominantShare: number;
  readonly fragmentation: number;
  readonly resources: readonly ResourceUse[];
  readonly headroom: readonly number[];
}

export interface Shape {
  readonly example: string;
  readonly requests: Amounts;
  readonly pods: number;
  readonly weight: number;
  readonly fragmentation: number;
  readonly arithmetic: number;
  readonly engine?: number;
  readonly complete?: boolean;
}

export interface PendingCause {
  readonly pods: readonly string[];
  readonly plugins: Amounts;
  readonly message: string;
}

/** A ClusterQueue of Kueue; `amounts` at the end and as means over the run. */
export interface ClusterQueue {
  readonly name: string;
  readonly cohort: string;
  readonly fault: string;
  readonly share: number;
  readonly admitted: number;
  readonly waiting: number;
  readonly finished: number;
  readonly evictions: number;
  readonly amounts: readonly {
    readonly resource: string;
    readonly nominal: number;
    readonly used: number;
    readonly borrowed: number;
    readonly lent: number;
    readonly meanUsed: number;
    readonly meanBorrowed: number;
    readonly meanLent: number;
  }[];
  readonly waits: { readonly p50: number | null; readonly p90: number | null } | null;
}

/** A job in a queue; times in seconds, before the moment of the input negative. */
export interface QueuedJob {
  readonly namespace: string;
  readonly object: string;
  readonly clusterQueue: string;
  readonly priority: number;
  readonly pods: number;
  readonly state: "Waiting" | "Admitted" | "Finished" | "Deactivated";
  readonly reason: string;
  readonly arrived: number;
  readonly reserved: number | null;
  readonly finished: number | null;
  readonly evictions: number;
  readonly withoutNode: number;
  readonly held: readonly (readonly [number, number | null])[];
}

export interface Queues {
  readonly queues: readonly ClusterQueue[];
  readonly cohorts: readonly { readonly name: string; readonly parent: string; readonly nominal: Amounts }[];
  readonly workloads: readonly QueuedJob[];
  readonly fairSharing: boolean;
  readonly seconds: number;
  readonly fairness: number | null;
}

export interface OverviewAnswer {
  readonly nodes: { readonly all: number; readonly counted: number; readonly cordoned: number; readonly notReady: number };
  readonly pods: { readonly placed: number; readonly pending: number; readonly onNotReady: number };
  readonly pending: readonly PendingCause[];
  readonly skew: number;
  readonly all: Place;
  readonly groups: readonly Place[];
  readonly zones: readonly Place[];
  readonly mix: readonly Shape[];
  /** Kueue's, if there are any. */
  readonly queues?: Queues;
}

export type Overview = Envelope<"Overview", OverviewAnswer>;

/** A run of an autoscaler; `run` names it on Time. */
export interface SimulationReport {
  readonly kind: "SimulationReport";
  readonly run?: string;
  readonly notes: readonly { readonly kind: string; readonly text: string }[];
  readonly summary: {
    readonly endedSeconds: number;
    readonly nodes: number;
    readonly pods: { readonly placed: number; readonly pending: number };
  };
}

export type AnyDocument = Explanation | Capacity | NodePlan | DrainReport | Survival | Comparison | Overview | PodGroupExplanation;

/** A document of a kind that has no page of its own: a newer release, or a simulation report. */
export type UnknownDocument = Envelope<string, unknown>;
