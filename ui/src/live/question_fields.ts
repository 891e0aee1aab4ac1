/** The fields of a question, by the command that answers it. `make reference` writes this file from the tables. */
export interface ExplainFields {
  readonly explain?: unknown;
  readonly all?: unknown;
  readonly byCause?: unknown;
  readonly may?: string | undefined;
  readonly doNotTouch?: string | readonly string[] | undefined;
  readonly alternatives?: number | undefined;
  readonly probes?: number | undefined;
  readonly withQueue?: boolean | undefined;
  readonly pods?: unknown;
  readonly timeLimitSeconds?: number;
}

export interface ReportFields {
  readonly report: {
    readonly allNodes?: boolean | undefined;
    readonly byEngine?: number | undefined;
  };
  readonly timeLimitSeconds?: number;
}

export interface CapacityFields {
  readonly capacity?: unknown;
  readonly limit?: number | undefined;
  readonly seeds?: number | undefined;
  readonly pending?: string | undefined;
  readonly preempt?: boolean | undefined;
  readonly replicas?: boolean | undefined;
  readonly gains?: unknown;
  readonly template?: unknown;
  readonly numbers?: unknown;
  readonly quota?: unknown;
  readonly timeLimitSeconds?: number;
}

export interface PlanFields {
  readonly types?: unknown;
  readonly pods?: unknown;
  readonly autoscaler?: string | undefined;
  readonly consolidate?: boolean | undefined;
  readonly buy?: boolean | undefined;
  readonly objective?: string | undefined;
  readonly plan?: unknown;
  readonly flags?: unknown;
  readonly timeLimitSeconds?: number;
}

export interface DrainFields {
  readonly drain?: string | readonly string[] | undefined;
  readonly ignore_daemonsets?: boolean | undefined;
  readonly delete_emptydir_data?: boolean | undefined;
  readonly force?: boolean | undefined;
  readonly disable_eviction?: boolean | undefined;
  readonly grace_period?: number | undefined;
  readonly timeout?: string | undefined;
  readonly skip_wait_for_delete_timeout?: number | undefined;
  readonly pod_selector?: string | undefined;
  readonly ready_after?: string | undefined;
  readonly together?: boolean | undefined;
  readonly returns?: boolean | undefined;
  readonly surge?: number | undefined;
  readonly find_order?: boolean | undefined;
  readonly timeLimitSeconds?: number;
}

export interface CordonFields {
  readonly cordon?: string | readonly string[] | undefined;
}

export interface FailFields {
  readonly fail?: unknown;
  readonly zone?: unknown;
  readonly mode?: string | undefined;
}

export interface SurviveFields {
  readonly survive?: string | undefined;
  readonly depth?: number | undefined;
  readonly spare?: string | undefined;
  readonly probes?: number | undefined;
  readonly timeLimitSeconds?: number;
}

export interface CompareFields {
  readonly compare: {
    readonly a?: unknown;
    readonly b?: unknown;
    readonly aRelease?: string | undefined;
    readonly bRelease?: string | undefined;
    readonly seeds?: number | undefined;
    readonly replaceAll?: boolean | undefined;
    readonly allNodes?: boolean | undefined;
    readonly strict?: boolean | undefined;
    readonly failOn?: string | readonly string[] | undefined;
  };
  readonly timeLimitSeconds?: number;
}

export interface CheckFields {
  readonly check?: unknown;
  readonly timeLimitSeconds?: number;
}

export interface DescheduleFields {
  readonly deschedule?: unknown;
  readonly cycles?: number | undefined;
  readonly timeLimitSeconds?: number;
}

export interface RightsizeFields {
  readonly rightsize?: unknown;
  readonly timeLimitSeconds?: number;
}

export interface SimulateFields {
  readonly simulate: {
    readonly pools?: unknown;
    readonly instanceTypes?: unknown;
    readonly spotInterruptions?: unknown;
    readonly until?: number | undefined;
    readonly autoscaler?: unknown;
    readonly namespace?: string | undefined;
    readonly selector?: string | undefined;
    readonly failOn?: string | readonly string[] | undefined;
  };
}

export interface SweepFields {
  readonly sweep: {
    readonly configs?: unknown;
    readonly releases?: unknown;
    readonly parameters?: unknown;
    readonly seeds?: unknown;
    readonly replaceAll?: unknown;
    readonly metrics?: unknown;
    readonly against?: unknown;
    readonly allNodes?: unknown;
    readonly prices?: unknown;
  };
  readonly timeLimitSeconds?: number;
}

export interface ConfigShowFields {
  readonly configuration?: unknown;
}

export type QuestionFields = ExplainFields | ReportFields | CapacityFields | PlanFields | DrainFields | CordonFields | FailFields | SurviveFields | CompareFields | CheckFields | DescheduleFields | RightsizeFields | SimulateFields | SweepFields | ConfigShowFields;
