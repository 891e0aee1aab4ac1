/**
 * The licences of the packages that the bundle contains, from the packages themselves.
 *
 * Packages whose licences differ in the lines of copyright or in line breaks alone share one text.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

interface Package {
  name: string;
  version: string;
  license: string;
  folder: string;
}

/** The package that a module of `node_modules` belongs to; nothing for our own modules. */
function packageOf(id: string): Package | undefined {
  const file = id.replace(/^\0/, "").replace(/\?.*$/, "");
  if (!file.includes("/node_modules/")) return undefined;
  for (let folder = dirname(file); !folder.endsWith("/node_modules"); folder = dirname(folder)) {
    const manifest = join(folder, "package.json");
    if (!existsSync(manifest)) continue;
    const { name, version, license } = JSON.parse(readFileSync(manifest, "utf8")) as Partial<Package>;
    if (name && version && license) return { name, version, license, folder };
  }
  throw new Error(`${file} belongs to no package that names its licence`);
}

function textOf({ name, folder }: Package): string {
  const file = readdirSync(folder).find((entry) => /^licen[cs]e(\.|$)/i.test(entry));
  if (!file) throw new Error(`the package ${name} contains no licence; leave it out, or add its text here`);
  return readFileSync(join(folder, file), "utf8").replaceAll("\r\n", "\n").trim();
}

/** The notice for the packages of these modules, as plain text. */
export function notice(ids: Iterable<string>): string {
  const packages = new Map<string, Package>();
  for (const id of ids) {
    const found = packageOf(id);
    if (found) packages.set(found.name, found);
  }
  const groups = new Map<string, { heads: string[]; terms: string }>();
  for (const one of [...packages.values()].sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const lines = textOf(one).split("\n");
    const copyright = lines.filter((line) => /^\s*copyright \(c\)/i.test(line)).map((line) => line.trim());
    const terms = lines.filter((line) => !/^\s*copyright \(c\)/i.test(line)).join("\n").replace(/\n{3,}/g, "\n\n");
    const key = terms.replace(/\s+/g, " ");
    const group = groups.get(key) ?? { heads: [], terms };
    group.heads.push(`${one.name} ${one.version} (${one.license}): ${copyright.join("; ")}`);
    groups.set(key, group);
  }
  const parts = [...groups.values()].map(({ heads, terms }) => `${heads.join("\n")}\n\n${terms}\n`);
  return `This page contains these packages.\n\n${parts.join("\n")}`;
}
