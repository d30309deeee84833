// Builds the page into the Python package. The first line of the script names the digest of the sources, so that a
// test finds a page that was not built again; tests/unit/explorer/test_bundle.py computes the same digest.
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = process.argv[2] ?? join(here, "..", "src", "coterie", "explorer", "static");
const folder = join(here, "src");

const digest = createHash("sha256");
for (const name of readdirSync(folder).sort()) {
  digest.update(name).update("\0").update(readFileSync(join(folder, name))).update("\0");
}
for (const name of ["build.mjs", "package-lock.json"]) digest.update(readFileSync(join(here, name))).update("\0");

mkdirSync(target, { recursive: true });
await build({
  entryPoints: { explorer: join(folder, "main.ts") },
  outdir: target,
  bundle: true,
  minify: true,
  charset: "utf8",
  format: "iife",
  target: "es2022",
  legalComments: "none",
  loader: { ".woff2": "dataurl" },
  banner: { js: `/* sources ${digest.digest("hex")} */` },
  logLevel: "warning",
});
const fonts = ["fraunces", "inter"].map((name) => join(here, "node_modules", "@fontsource-variable", name, "LICENSE"));
writeFileSync(join(target, "fonts-license.txt"), fonts.map((path) => readFileSync(path, "utf8").trim()).join("\n\n") + "\n");
for (const name of ["index.html", "icon.svg"]) copyFileSync(join(folder, name), join(target, name));
