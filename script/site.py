"""Build the documentation site: docs/*.md, the README as front page, commands and API generated; then check the result.

`script/docs` calls it. Sources are collected in build/docs, the site is build/site. A page without a title, an API page
without members, a link that leads nowhere or a page missing from the navigation ends the build with a message.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
SOURCE, SITE = ROOT / "build" / "docs", ROOT / "build" / "site"

NAVIGATION: dict[str, dict[str, str]] = {
    "Start": {
        "Odeum": "index.md",
        "The idea in one page": "idea.md",
        "Quick start": "quickstart.md",
        "Choosing an architecture": "choosing-architecture.md",
        "Choosing an integrator": "choosing-integrator.md",
    },
    "Tutorials": {
        "Images": "tutorial-images.md",
        "Text": "tutorial-text.md",
        "Translation": "tutorial-translation.md",
        "An architecture of your own": "tutorial-architecture.md",
        "A pretrained model": "tutorial-pretrained.md",
        "Many runs, many machines": "tutorial-cluster.md",
    },
    "Guides": {"Odeum in your code": "using.md", "Your data": "data.md", "Other libraries": "ecosystem.md"},
    "Architectures": {
        "The family": "family.md",
        "TransEvolve": "transevolve.md",
        "Extend": "extending.md",
        "Design": "architecture.md",
    },
    "Experiments": {
        "Results": "results.md",
        "Statistics": "statistics.md",
        "Surgery": "surgery.md",
        "Protocol": "protocol.md",
        "Learning rates and positions": "rates.md",
        "Several processes": "distributed.md",
        "Guarantees": "guarantees.md",
        "Performance": "performance.md",
    },
}
API = {
    "odeum.fields": "What is integrated: attention, feed-forward, and the algebra of fields.",
    "odeum.integrators": "One step, an interval, a gradient.",
    "odeum.flow": "A field, a solver and an interval make a layer; layers make a stack.",
    "odeum.tableaux": "Runge–Kutta coefficients, with their order conditions.",
    "odeum.schedules": "Which weights act when.",
    "odeum.looping": "A stack whose core repeats.",
    "odeum.registry.register": "Add tableaux, methods, fields, architectures and kinds of task.",
    "odeum.models": "Whole models, and drop-in encoders and decoders.",
    "odeum.models.settings": "Sizes and options of models.",
    "odeum.inspection": "What tokens do on their way through the layers.",
    "odeum.surgery": "Edits of the depth of a trained model.",
    "odeum.decode": "Generation and beam search.",
    "odeum.hf": "The models under the interface of transformers.",
    "odeum.errors": "Errors that users see.",
}
VERBS_TITLE = "Commands"
STYLE = """\
.md-grid { max-width: 68rem; }
.md-typeset pre > code { font-size: .65rem; }
.md-typeset :is(td, th) code { white-space: nowrap; }
.md-typeset table:not([class]) :is(td, th) { min-width: 0; padding: .5em .7em; }
"""
"""names and options in tables are not broken (tables scroll); code fits beside the navigation"""


def collect() -> None:
    """Copy the pages, and write those that are generated."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    (SOURCE / "reference" / "api").mkdir(parents=True)
    for path in (ROOT / "docs").iterdir():
        if path.suffix in (".md", ".svg", ".png"):
            shutil.copyfile(path, SOURCE / path.name)
    (SOURCE / "extra.css").write_text(STYLE, encoding="utf-8")
    (SOURCE / "index.md").write_text(_front_page(), encoding="utf-8")
    (SOURCE / "changes.md").write_text((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "]("))
    for page in SOURCE.glob("*.md"):
        page.write_text(_titled_links(_links_to_code(page.read_text(encoding="utf-8"))), encoding="utf-8")
    (SOURCE / "reference" / "commands.md").write_text(_commands(), encoding="utf-8")
    for module, about in API.items():
        text = f"# {module}\n\n{about}\n\n::: {module}\n"
        (SOURCE / "reference" / "api" / f"{module}.md").write_text(text, encoding="utf-8")


def _front_page() -> str:
    """The README, with links as seen from the site."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.sub(r"\]\(docs/", "](", text).replace('src="docs/', 'src="')


def _links_to_code(text: str) -> str:
    """Links to files of the repository become the names of these files: they are not part of the site."""
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]+\)", r"\1", text)


def _titled_links(text: str) -> str:
    """Links whose text is a file name get the title of that page."""
    titles = {page: title for pages in NAVIGATION.values() for title, page in pages.items()}

    def titled(match: re.Match[str]) -> str:
        name = match["page"]
        return f"[{titles[name]}]({name}{match['anchor'] or ''})" if name in titles else match[0]

    return re.sub(r"\[(?:docs/)?(?P<page>[\w-]+\.md)\]\((?P=page)(?P<anchor>#[^)]*)?\)", titled, text)


def _commands() -> str:
    """`odeum VERB --help` of every verb."""
    from odeum.lab.cli import VERBS

    parts = [f"# {VERBS_TITLE}\n\nGenerated from `odeum VERB --help`.\n"]
    for verb, (_, about) in VERBS.items():
        command = [sys.executable, "-m", "odeum", verb, "--help"]
        shown = subprocess.run(command, capture_output=True, text=True, env=_environment())
        if shown.returncode:
            raise SystemExit(f"`odeum {verb} --help` failed: {shown.stderr.strip()}")
        parts.append(f"## odeum {verb}\n\n{about[0].upper()}{about[1:]}.\n\n```text\n{shown.stdout.strip()}\n```\n")
    return "\n".join(parts)


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "COLUMNS": "84", "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}


def configure() -> Path:
    """mkdocs.yml, from the navigation above."""
    lines = [
        "site_name: Odeum",
        "site_description: A transformer layer is one step of a numerical integrator",
        f"docs_dir: {SOURCE.relative_to(ROOT / 'build')}",
        f"site_dir: {SITE.relative_to(ROOT / 'build')}",
        "use_directory_urls: false",
        "extra_css: [extra.css]",
        "theme:",
        "  name: material",
        "  font: false",
        "  features: [navigation.sections, navigation.top, content.code.copy, search.suggest]",
        "  palette:",
        "    - media: '(prefers-color-scheme: light)'",
        "      scheme: default",
        "      toggle: {icon: lucide/moon, name: Dark mode}",
        "    - media: '(prefers-color-scheme: dark)'",
        "      scheme: slate",
        "      toggle: {icon: lucide/sun, name: Light mode}",
        "markdown_extensions: [tables, admonition, toc, attr_list, pymdownx.superfences, pymdownx.highlight]",
        "plugins:",
        "  - search",
        "  - mkdocstrings:",
        "      handlers:",
        "        python:",
        f"          paths: [{ROOT}]",
        "          options:",
        "            {show_root_heading: false, show_root_toc_entry: false, members_order: source, show_source: false,",
        "             docstring_style: google, merge_init_into_class: true, separate_signature: true, line_length: 80,",
        "             show_signature_annotations: true, show_labels: false}",
        "nav:",
    ]
    for section, pages in {
        **NAVIGATION,
        "Reference": {VERBS_TITLE: "reference/commands.md", **{m: f"reference/api/{m}.md" for m in API}},
        "Project": {"Changes": "changes.md"},
    }.items():
        lines.append(f"  - {section}:")
        lines += [f"      - {title}: {page}" for title, page in pages.items()]
    path = ROOT / "build" / "mkdocs.yml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_llms() -> None:
    """llms.txt: what the project is and where its pages are; llms-full.txt: all pages in one."""
    lines = ["# Odeum", "", "> A transformer layer is one step of a numerical integrator.", ""]
    whole = []
    for section, pages in NAVIGATION.items():
        lines.append(f"## {section}\n")
        for title, page in pages.items():
            lines.append(f"- [{title}]({page.removesuffix('.md')}.html)")
            whole.append((SOURCE / page).read_text(encoding="utf-8"))
        lines.append("")
    (SITE / "llms.txt").write_text("\n".join(lines), encoding="utf-8")
    (SITE / "llms-full.txt").write_text("\n\n".join(whole), encoding="utf-8")


class _Page(HTMLParser):
    """Links, anchors, quotations and the number of documented objects of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []
        self.documented = 0
        self.quotes = self.deepest_quote = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if anchor := values.get("id") or values.get("name"):
            self.anchors.add(anchor)
        for name in ("href", "src"):
            if link := values.get(name):
                self.links.append(link)
                if name == "src" or values.get("rel") == "stylesheet":
                    self.loaded.append(link)
        self.quotes += tag == "blockquote"
        self.deepest_quote = max(self.quotes, self.deepest_quote)
        self.documented += "doc-object" in (values.get("class") or "")

    def handle_endtag(self, tag: str) -> None:
        self.quotes -= tag == "blockquote"


def check() -> list[str]:
    """What is wrong with the built site."""
    pages = {}
    for path in SITE.rglob("*.html"):
        parser = _Page()
        parser.feed(path.read_text(encoding="utf-8"))
        pages[path.resolve()] = parser
    wrong = []
    for path, page in pages.items():
        name = path.relative_to(SITE.resolve())
        if name.parts[0] == "404.html":
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                wrong.append(f"{name}: {link} leads nowhere")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                wrong.append(f"{name}: {link} names no heading")
        if name.parts[:2] == ("reference", "api") and page.documented < 2:
            wrong.append(f"{name}: no member is documented")
        if page.deepest_quote > 1:
            wrong.append(f"{name}: an example of a docstring is shown as a quotation; put it under 'Examples:'")
        for link in page.loaded:
            if urlsplit(link).netloc:
                wrong.append(f"{name}: {link} is loaded from another host")
    known = {page for pages in NAVIGATION.values() for page in pages.values()} | {"changes.md"}
    wrong += [f"docs/{p.name} is missing from the navigation" for p in SOURCE.glob("*.md") if p.name not in known]
    return wrong


def main() -> None:
    sys.path.insert(0, str(ROOT))
    collect()
    config = configure()
    shutil.rmtree(SITE, ignore_errors=True)
    builder = Path(sys.executable).with_name("zensical")
    if not builder.exists():
        raise SystemExit("the site needs zensical: script/setup docs, or pip install 'odeum[docs]'")
    done = subprocess.run([str(builder), "build", "--config-file", str(config)], cwd=config.parent)
    if done.returncode:
        raise SystemExit("zensical failed")
    write_llms()
    if wrong := check():
        raise SystemExit("\n".join([*wrong, f"{len(wrong)} problems"]))
    print(f"{SITE.relative_to(ROOT)}: {len(list(SITE.rglob('*.html')))} pages, links and API pages checked")


if __name__ == "__main__":
    main()
