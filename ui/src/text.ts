/** Amounts, times and names in words. */

const BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] as const;

/** Return bytes with the unit that leaves at least 1, rounded to three significant digits: 1610612736 is "1.5Gi". */
export function bytes(amount: number): string {
  let value = Math.abs(amount);
  let unit = 0;
  while (value >= 1024 && unit < BINARY.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return sign(amount) + digits(value) + BINARY[unit];
}

/** Return cpu in cores, or in millicores below one core: 500 is "500m", 11840 is "11.84". */
export function cores(milli: number): string {
  return Math.abs(milli) < 1000 && milli !== 0 ? `${milli}m` : String(Number((milli / 1000).toFixed(3)));
}

/** Return an amount of a resource: cpu comes in millicores, memory and storage in bytes, others in counts. */
export function amount(resource: string, value: number): string {
  if (resource === "cpu") return cores(value);
  if (/^(memory|ephemeral-storage|storage)$|^hugepages-/.test(resource)) return bytes(value);
  return count(value);
}

export function amounts(all: Readonly<Record<string, number>>): string {
  return Object.entries(all)
    .map(([resource, value]) => `${resource} ${amount(resource, value)}`)
    .join(", ");
}

const numbers = new Intl.NumberFormat("en-US", { maximumFractionDigits: 2 });

export const count = (value: number): string => numbers.format(value);

/** Return "1 node" or "3 nodes". */
export function plural(value: number, one: string, many = one + "s"): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

export function percent(share: number, decimals = 1): string {
  return (share * 100).toFixed(decimals) + "%";
}

/** Return a duration as the commands print it: 0.5s, 41s, 2m5s, 1h2m. */
export function seconds(value: number): string {
  if (value < 10) return `${Number(value.toFixed(1))}s`;
  const whole = Math.round(value);
  if (whole < 60) return `${whole}s`;
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return hours ? `${hours}h${minutes ? `${minutes}m` : ""}` : `${minutes}m${rest ? `${rest}s` : ""}`;
}

/** Return the time of seconds since 1970 in UTC: of the day, or with the date on a scale that is longer than a day. */
export function clock(seconds: number, scale = 0): string {
  const time = new Date(seconds * 1000);
  if (Number.isNaN(time.getTime())) return "";
  return scale > 86_400 ? time.toISOString().slice(5, 16).replace("T", " ") : time.toISOString().slice(11, 19);
}

/** Return a number with its sign, and a real minus sign. */
export function signed(value: number, format: (value: number) => string = count): string {
  return value > 0 ? "+" + format(value) : value < 0 ? "−" + format(-value) : format(0);
}

/** Show characters that have no shape or turn the direction of text: names in dumps may be hostile. */
export function visible(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, (one) => "\\u" + one.codePointAt(0)!.toString(16).padStart(4, "0"));
}

/** Return the name of a pod without its namespace. */
export function shortName(pod: string): string {
  return pod.slice(pod.indexOf("/") + 1);
}

/** The end that the names of all nodes share, such as `.eu-west-1.compute.internal`; pages show it once. */
let ending = "";

export const sharedEnding = (): string => ending;

/** Take the names of all nodes of the cluster that is shown. */
export function nameNodes(names: Iterable<string>): void {
  const [first = "", ...others] = names;
  ending = others.length < 2 ? "" : first.slice(Math.max(0, first.indexOf(".")));
  for (const name of others) {
    while (ending && !(name.endsWith(ending) && name.length > ending.length)) ending = ending.slice(Math.max(1, ending.indexOf(".", 1) < 0 ? ending.length : ending.indexOf(".", 1)));
    if (!ending) break;
  }
  if (!ending.startsWith(".") || ending.length < SHORT) ending = "";
}

/** A shorter end is left where it is. */
const SHORT = 8;

/** Return the name of a node without the end that all nodes share. */
export const shortNode = (name: string): string => (ending && name.endsWith(ending) ? name.slice(0, -ending.length) : name);

/** Show a sentence with the names of nodes in it short. */
export const briefly = (text: string): string => visible(ending ? text.replaceAll(ending, "") : text);

/** Compares names, and numbers in them as numbers: n9 comes before n10. */
export const natural = new Intl.Collator("en", { numeric: true });

function digits(value: number): string {
  if (value >= 100 || Number.isInteger(value)) return String(Math.round(value));
  return String(Number(value.toPrecision(3)));
}

const sign = (value: number) => (value < 0 ? "−" : "");
