"""The look of the page: one column of text, wide tables and plots, light and dark by the reader's own setting."""

from __future__ import annotations

CSS = """
:root { color-scheme: light dark;
  --font: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif;
  --mono: ui-monospace, "SF Mono", "Cascadia Code", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  --paper: #fcfcfb; --card: #ffffff; --ink: #1b1f24; --soft: #57606a; --grid: #dcdfe3; --line: #e4e6ea;
  --good: #00694d; --good-bg: #e0f3ec; --bad: #a84300; --bad-bg: #fdeadd; --even-bg: #eef0f3; --code: #f3f4f6;
  --s0: #0072b2; --s1: #d55e00; --s2: #009e73; --s3: #cc79a7; --s4: #56b4e9; --s5: #e69f00; }
@media screen and (prefers-color-scheme: dark) { :root {
  --paper: #14171b; --card: #1a1e23; --ink: #e7eaee; --soft: #a0a9b4; --grid: #343a42; --line: #2b3138;
  --good: #5fd3ac; --good-bg: #12352b; --bad: #ffa46b; --bad-bg: #3f2415; --even-bg: #272d34; --code: #22272e;
  --s0: #4aa8e0; --s1: #f0813c; --s2: #2ec49a; --s3: #e39bc4; --s4: #8fd0f7; --s5: #f3bd4b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 var(--font);
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%; }
main { max-width: 1180px; margin: 0 auto; padding: 48px 28px 72px; }
.eyebrow { color: var(--soft); font-size: 14px; letter-spacing: .02em; margin: 0 0 12px; }
h1 { font-size: clamp(23px, 3.1vw, 33px); line-height: 1.28; font-weight: 600; letter-spacing: -.012em;
  margin: 0 0 22px; max-width: 32em; text-wrap: pretty; overflow-wrap: anywhere; }
h1 strong { font-weight: 700; box-shadow: inset 0 -.36em var(--good-bg); }
h2 { font-size: 20px; font-weight: 650; margin: 52px 0 14px; letter-spacing: -.005em; }
p, li { max-width: 46em; text-wrap: pretty; }
.soft, figcaption, .foot { color: var(--soft); font-size: 14px; }
.groups { display: flex; flex-wrap: wrap; gap: 8px 22px; padding: 0; margin: 0; list-style: none; }
.groups li { max-width: none; } .groups + .card { margin-top: 14px; }
.pill { display: inline-block; padding: 1px 9px; border-radius: 99px; font-size: 13.5px; line-height: 1.6;
  background: var(--even-bg); white-space: nowrap; }
td .pill { white-space: normal; border-radius: 13px; line-height: 1.4; }
.pill.better { background: var(--good-bg); color: var(--good); font-weight: 600; }
.pill.worse { background: var(--bad-bg); color: var(--bad); font-weight: 600; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
.wide { overflow-x: auto; padding: 4px 0; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { font-weight: 500; color: var(--soft); font-size: 13px; line-height: 1.35; text-align: right;
  vertical-align: bottom; padding: 12px 8px 9px; border-bottom: 1px solid var(--line); }
td { padding: 9px 8px; text-align: right; border-top: 1px solid var(--line); white-space: nowrap; }
tr:first-child td { border-top: 0; }
th:first-child, td:first-child { text-align: left; padding-left: 18px; }
th:last-child, td:last-child { padding-right: 18px; }
td.words, th.words { text-align: left; }
td.name { font-weight: 600; white-space: normal; overflow-wrap: break-word; min-width: 11em; }
.named { display: flex; align-items: baseline; }
td.main { font-weight: 600; }
td.main span, td small { font-weight: 400; color: var(--soft); font-size: 13px; }
td small { display: block; font-size: 12.5px; }
.key { width: 26px; height: 14px; margin-right: 9px; flex: none; position: relative; top: 2px; }
.forest { display: block; width: 136px; height: 20px; }
.forest .margin { fill: var(--even-bg); }
.ends { display: flex; justify-content: space-between; width: 136px; font-size: 12px; }
.confusion td { text-align: center; padding: 6px; } .confusion th { text-align: center; }
.confusion td.name { min-width: 4em; text-align: left; }
.forest .seed { opacity: .55; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 18px; }
figure { margin: 0; padding: 16px 16px 14px; min-width: 0; }
figure h3 { font-size: 15.5px; font-weight: 600; margin: 0 0 8px; }
figure .draw { overflow-x: auto; }
figure svg { display: block; width: 100%; min-width: 330px; height: auto; }
code, pre { font-family: var(--mono); font-size: .9em; }
pre { background: var(--code); padding: 12px 16px; border-radius: 8px; overflow-x: auto; margin: 0;
  white-space: pre-wrap; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 8px 24px; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.equations dt { color: inherit; font-weight: 600; } .equations code { white-space: pre-wrap; }
.warn { border-left: 3px solid var(--s5); padding: 2px 0 2px 16px; margin: 26px 0 0; }
.warn p { margin: 4px 0; }
ul.notes { padding-left: 1.1em; margin: 0; } ul.notes li { margin: 7px 0; }
details { margin-top: 16px; } summary { cursor: pointer; color: var(--soft); font-size: 14px; }
details .card { margin-top: 12px; }
.foot { margin-top: 56px; }
@media screen and (max-width: 720px) {
  main { padding: 28px 16px 48px; } h2 { margin-top: 40px; }
  .results thead { display: none; }
  .results tr { display: block; padding: 12px 16px; border-top: 1px solid var(--line); }
  .results tr:first-child { border-top: 0; }
  .results td, .results td:first-child { display: flex; justify-content: space-between; gap: 16px; align-items: center;
    border: 0; padding: 3px 0; text-align: right; white-space: normal; }
  .results td.name { font-size: 16px; padding-bottom: 6px; text-align: left; }
  .results td[data-head]::before { content: attr(data-head); color: var(--soft); font-weight: 400; font-size: 13.5px;
    text-align: left; }
  td.words { white-space: normal; } td.name { min-width: 7em; }
  dl { grid-template-columns: 1fr; gap: 2px; } dd { margin-bottom: 10px; }
  figure { padding: 12px 8px; } figure h3, figcaption { padding: 0 6px; }
}
@media print {
  :root { color-scheme: light; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  body { font-size: 11px; background: none; } main { padding: 0; max-width: none; }
  h1 { font-size: 19px; } h2 { font-size: 14px; margin: 22px 0 8px; break-after: avoid; }
  .wide { overflow: visible; } table { font-size: 10px; } th, td small, td.main span, .ends { font-size: 9px; }
  td, th { padding: 5px 4px; } th:first-child, td:first-child { padding-left: 8px; }
  th:last-child, td:last-child { padding-right: 8px; } td.name { min-width: 6em; } .key { margin-right: 4px; }
  .forest, .ends { width: 90px; } .pill { font-size: 9.5px; padding: 0 6px; white-space: normal; line-height: 1.3;
    border-radius: 8px; }
  td.words { white-space: normal; max-width: 13em; }
  .soft, figcaption, .foot, .eyebrow { font-size: 10px; }
  .plots { grid-template-columns: 1fr 1fr; gap: 10px; } figure { padding: 8px; } figure h3 { font-size: 11px; }
  figure svg { min-width: 0; } figure, tr, .warn { break-inside: avoid; } details { display: none; }
}
"""
