/** Tables with aligned numbers, which show the first rows and the others on demand. */
import { Button, Section } from "./basics";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** A column of numbers, and one that holds sentences: never narrower than a few words. */
export const NUM = 1;
export const PROSE = 2;

/** What stands at the head of a column, its cells, and its kind. */
export type Column<Row> = readonly [head: string, cell: (row: Row, index: number) => ComponentChildren, kind?: 1 | 2];

const CLASS = ["", "num", "prose"];

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
  const box = useRef<HTMLDivElement>(null);
  const [scrolls, setScrolls] = useState(false);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => setScrolls(box.current!.scrollWidth > box.current!.clientWidth));
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  return (
    <>
      <div class="table-box" ref={box} {...(scrolls && { tabIndex: 0, role: "group", "aria-label": label })}>
        <table aria-label={label}>
          <thead>
            <tr>
              {columns.map(([head, , kind]) =>
                head ? (
                  <th scope="col" class={CLASS[kind!]}>
                    {head}
                  </th>
                ) : (
                  <td />
                ),
              )}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, limit).map((row, index) => (
              <tr key={index} class={strong?.(row) ? "strong" : ""}>
                {columns.map(([, cell, kind]) => (
                  <td class={CLASS[kind!]}>{cell(row, index)}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rest > 0 && (
        <Button quiet onClick={() => setLimit(limit + 500)}>
          Show {Math.min(rest, 500)} more{rest > 500 && ` of ${rest}`}
        </Button>
      )}
    </>
  );
}

/** A table that is a part of a page. */
export const TableSection = <Row,>({ title, aside, ...table }: { title: string; aside?: ComponentChildren } & Omit<TableProps<Row>, "label">) => (
  <Section title={title} aside={aside}>
    <Table label={title} {...table} />
  </Section>
);
