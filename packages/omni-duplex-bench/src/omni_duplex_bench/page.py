"""The frame of the report: markup, style and the one script, all inline."""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root { color-scheme: light dark; --bg: #fbfbfa; --card: #fff; --ink: #1d2126; --dim: #68707a; --line: #dfe2e6;
  --user: #2f6fde; --server: #d9752b; --wait: #b9c0c9; --think: #7d5bd0; --speakup: #d9752b; --stream: #3a9d6c;
  --bad: #b3261e; --ok: #2e7d4f; }
@media (prefers-color-scheme: dark) { :root:not([data-theme=light]) { --bg: #14171b; --card: #1c2026; --ink: #e6e9ed;
  --dim: #97a1ac; --line: #323942; --user: #6fa3ff; --server: #f0a060; --wait: #58616d; --think: #a78bf0;
  --speakup: #f0a060; --stream: #5cc48f; --bad: #ff8a80; --ok: #7bd3a0; } }
:root[data-theme=dark] { color-scheme: dark; --bg: #14171b; --card: #1c2026; --ink: #e6e9ed; --dim: #97a1ac;
  --line: #323942; --user: #6fa3ff; --server: #f0a060; --wait: #58616d; --think: #a78bf0; --speakup: #f0a060;
  --stream: #5cc48f; --bad: #ff8a80; --ok: #7bd3a0; }
:root[data-theme=light] { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem clamp(.8rem, 3vw, 2.5rem) 4rem; max-width: 76rem; background: var(--bg);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
header { display: flex; justify-content: space-between; align-items: center; gap: 1rem; }
h1 { font-size: 1.15rem; margin: 0; } h2 { font-size: 1.3rem; margin: 1.2rem 0 .3rem; overflow-wrap: anywhere; }
h3 small { font-weight: 400; color: var(--dim); }
h3 { margin: 2rem 0 .6rem; font-size: 1.05rem; }
h4 { margin: 0 0 .5rem; font-size: .95rem; overflow-wrap: anywhere; }
summary h2 { display: inline-block; }
.lead { font-size: 1.05rem; margin: .2rem 0 .8rem; }
.facts { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; color: var(--dim); font-size: .85rem; }
.facts b { font-weight: 600; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; color: var(--dim); font-size: .85rem; }
tr th:first-child { text-align: left; color: var(--ink); }
figure, article { margin: 0; padding: 1rem; background: var(--card); border: 1px solid var(--line); }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 1rem; }
figure, article { border-radius: 10px; }
article { margin-bottom: 1rem; } article h4:not(:first-child) { margin-top: 1rem; color: var(--dim); }
figcaption { font-weight: 600; font-size: .9rem; margin-bottom: .5rem; }
figcaption small { display: block; font-weight: 400; color: var(--dim); }
.ends { display: flex; justify-content: space-between; font-size: .8rem; color: var(--dim); }
svg { display: block; width: 100%; }
.lane { display: grid; grid-template-columns: 4.2rem 1fr; gap: .6rem; }
.who { font-size: .8rem; color: var(--dim); display: flex; flex-direction: column; gap: 5px; line-height: 20px; }
.plot { min-width: 0; } .said { font-size: .85rem; color: var(--dim); margin: .1rem 0 .6rem; overflow-wrap: anywhere; }
.axis { position: relative; height: 1.4rem; font-size: .75rem; color: var(--dim); border-top: 1px solid var(--line); }
.axis span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
.axis span:first-child { transform: none; } .axis span:last-child:not(:first-child) { transform: translateX(-100%); }
.k { display: inline-flex; align-items: center; gap: .4rem; margin-right: .9rem; font-size: .8rem; color: var(--dim); }
.k::before { content: ""; width: .7rem; height: .7rem; border-radius: 3px; background: currentColor; }
.k.user::before { background: var(--user); } .k.server::before { background: var(--server); }
.k.wait::before { background: var(--wait); } .k.think::before { background: var(--think); }
.k.speakup::before { background: var(--speakup); } .k.stream::before { background: var(--stream); }
rect.user { fill: var(--user); } rect.server { fill: var(--server); } rect.hist { fill: var(--user); }
rect.wait { fill: var(--wait); } rect.think { fill: var(--think); } rect.speakup { fill: var(--speakup); }
rect.stream { fill: var(--stream); }
line { vector-effect: non-scaling-stroke; } line.grid { stroke: var(--line); }
line.mark { stroke: var(--think); stroke-width: 2; } line.median { stroke: var(--ink); stroke-width: 2; }
line.high { stroke: var(--dim); stroke-width: 2; stroke-dasharray: 4 3; }
.status { font-size: .8rem; font-weight: 600; } .status.ok { color: var(--ok); } .status.bad { color: var(--bad); }
.badge { background: var(--bad); color: var(--bg); border-radius: 6px; padding: .1rem .5rem; font-size: .8rem; }
.warn { color: var(--bad); margin: .2rem 0; font-size: .88rem; overflow-wrap: anywhere; }
.heard, .legend { color: var(--dim); font-size: .88rem; margin: .2rem 0 .6rem; }
button { font: inherit; font-size: .85rem; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: .3rem .7rem; cursor: pointer; }
@media print { button { display: none; } article, figure { break-inside: avoid; } }
</style>
</head>
<body>
<header><h1>omni-duplex-bench</h1><button id="theme" type="button">light / dark</button></header>
{body}
<script>
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
</script>
</body>
</html>
"""
