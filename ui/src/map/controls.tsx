/** How the map is grouped and filled, and what is looked for. */
import { Button } from "../kit/basics";
import { visible } from "../text";
import { type Grouping } from "./layout";
import { type Measure, measureName } from "./look";

interface ControlsProps {
  grouping: Grouping;
  measure: Measure;
  table: boolean;
  search: string;
  labels: readonly string[];
  resources: readonly string[];
  set: (query: Record<string, string>) => void;
  setSearch: (text: string) => void;
}

export function MapControls({ grouping, measure, table, search, labels, resources, set, setSearch }: ControlsProps) {
  return (
    <form class="map-controls" role="search" onSubmit={(event) => event.preventDefault()}>
      <label>
        <span>Group by</span>
        <select value={grouping} onChange={(event) => set({ by: event.currentTarget.value })}>
          <option value="zone">zone</option>
          <option value="group">node group</option>
          <option value="none">nothing</option>
          <optgroup label="Label">
            {labels.map((label) => (
              <option value={`label:${label}`}>
                {visible(label)}
              </option>
            ))}
          </optgroup>
        </select>
      </label>
      <label>
        <span>Fill</span>
        <select value={measure} onChange={(event) => set({ fill: event.currentTarget.value })}>
          {["dominant", ...resources, "stranded"].map((one) => (
            <option value={one}>
              {visible(measureName(one))}
            </option>
          ))}
        </select>
      </label>
      <label class="grow">
        <span>Find</span>
        <input type="search" value={search} placeholder="node, label or pod" onInput={(event) => setSearch(event.currentTarget.value)} />
      </label>
      <Button aria-pressed={table} onClick={() => set({ as: table ? "" : "table" })}>
        {table ? "Show as map" : "Show as table"}
      </Button>
    </form>
  );
}
