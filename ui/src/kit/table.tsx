/** Tables with aligned numbers, which show the first rows and the others on demand. */
import { Button } from "./basics";
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

export interface Column<Row> {
  readonly head: string;
  readonly num?: boolean;
  /** Holds sentences: never narrower than a few words. */
  readonly prose?: boolean;
  readonly cell: (row: Row, index: number) => ComponentChildren;
}

interface TableProps<Row> {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  first?: number;
  strong?: (row: Row) => boolean;
}

export function Table<Row>({ label, columns, rows, first = 50, strong }: TableProps<Row>) {
  const [limit, setLimit] = useState(first);
  const rest = rows.length - limit;
  return (
    <>
      <div class="table-box">
        <table aria-label={label}>
          <thead>
            <tr>
              {columns.map((column) =>
                column.head ? (
                  <th key={column.head} scope="col" class={column.num ? "num" : ""}>
                    {column.head}
                  </th>
                ) : (
                  <td key="" class="no-head" />
                ),
              )}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, limit).map((row, index) => (
              <tr key={index} class={strong?.(row) ? "strong" : ""}>
                {columns.map((column) => (
                  <td key={column.head} class={column.num ? "num" : column.prose ? "prose" : ""}>
                    {column.cell(row, index)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rest > 0 && (
        <Button quiet onClick={() => setLimit(limit + 500)}>
          Show {Math.min(rest, 500)} more of {rest}
        </Button>
      )}
    </>
  );
}
