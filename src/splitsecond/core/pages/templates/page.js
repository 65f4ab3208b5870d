// Buttons, tooltips and highlighting. The page is complete without them.
"use strict";
{
  const root = document.documentElement;
  const svg = "http://www.w3.org/2000/svg";
  const system = matchMedia("(prefers-color-scheme: dark)");
  const shown = () => root.dataset.theme ?? (system.matches ? "dark" : "light");
  const theme = document.getElementById("theme");
  const label = () => { theme.textContent = shown() === "dark" ? "Light" : "Dark"; };
  theme.parentNode.hidden = false;
  theme.addEventListener("click", () => { root.dataset.theme = shown() === "dark" ? "light" : "dark"; label(); });
  system.addEventListener("change", label);
  label();

  document.getElementById("print").addEventListener("click", () => {
    root.dataset.print = "all";
    const closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((each) => { each.open = true; });
    print();
    closed.forEach((each) => { each.open = false; });
    delete root.dataset.print;
  });

  // A tooltip with the title of the mark below the pointer, at once, in the place of the browser's own.
  const tip = document.body.appendChild(document.createElement("div"));
  tip.id = "tip";
  tip.hidden = true;
  for (const title of document.querySelectorAll(".chart path title")) {
    title.parentNode.dataset.tip = title.textContent;
    title.remove();
  }
  document.addEventListener("pointermove", (event) => {
    const mark = event.target.closest?.("[data-tip]");
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.dataset.tip;
    const beside = event.clientX + 14 + tip.offsetWidth > innerWidth ? -tip.offsetWidth - 10 : 14;
    tip.style.left = `${Math.max(4, event.clientX + beside)}px`;
    tip.style.top = `${Math.max(4, event.clientY - tip.offsetHeight - 10)}px`;
  });

  // An entry of a legend highlights its marks: while the pointer is on it, or from one click to the next.
  let held = null;
  function highlight(key) {
    for (const each of document.querySelectorAll("[data-key]")) {
      const same = each.dataset.key.split("-")[0] === key?.split("-")[0];
      each.classList.toggle("dim", same && each.dataset.key !== key);
    }
  }
  for (const entry of document.querySelectorAll(".legend [data-key]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...entry.childNodes);
    entry.append(button);
    entry.addEventListener("pointerenter", () => highlight(entry.dataset.key));
    entry.addEventListener("pointerleave", () => highlight(held));
    button.addEventListener("click", () => {
      held = held === entry.dataset.key ? null : entry.dataset.key;
      for (const each of document.querySelectorAll(".legend [data-key]")) {
        each.firstChild.setAttribute("aria-pressed", each.dataset.key === held);
      }
      highlight(held);
    });
  }

  async function copy(text, button) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // a page from a file may not use the clipboard of some browsers
      const area = document.body.appendChild(document.createElement("textarea"));
      area.value = text;
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    const words = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = words; }, 1500);
  }
  for (const button of document.querySelectorAll(".copy")) {
    button.hidden = false;
    button.addEventListener("click", () => copy(button.previousSibling.textContent, button));
  }

  // Tables as texts: the figure of a cell, then its small print in columns of its own.
  function texts(table) {
    return [...table.rows].filter((row) => !row.hidden).map((row) => [...row.cells].map((cell) => {
      const small = [...cell.querySelectorAll("small")].map((each) => each.textContent.trim()).join(" ");
      const whole = [...cell.childNodes].filter((node) => node.nodeName !== "SMALL").map((node) => node.textContent);
      return [whole.join("").trim(), small];
    }));
  }
  const plain = (text) => /^[\d,]+(\.\d+)?$/.test(text) ? text.replaceAll(",", "") : text;
  // A spreadsheet takes a text that begins so for a formula, unless it is a number.
  const inert = (text) => /^[=+\-@\t\r\n＝＋－＠]/.test(text) && !/^[+-][\d,.]+%?$/.test(text) ? `'${text}` : text;
  const quoted = (text) => /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  function csv(table) {
    const rows = texts(table);
    const noted = rows[0].map((_, at) => rows.slice(1).some((row) => row[at][1]));
    return rows.map((row, line) => row.flatMap(([text, small], at) => {
      const named = line ? plain(text) : [text, small].filter(Boolean).join(" ");
      return noted[at] ? [named, line ? small : `${text} interval`] : [named];
    }).map(inert).map(quoted).join(",") + "\n").join("");
  }
  function markdown(table) {
    const [head, ...rows] = texts(table).map((row) => row.map(([text, small]) => `${text} ${small && `(${small})`}`.trim().replaceAll("|", "\\|")));
    return [head, head.map((_, at) => at ? "---:" : "---"), ...rows].map((row) => `| ${row.join(" | ")} |\n`).join("");
  }
  for (const table of document.querySelectorAll("table[data-export]")) {
    const bar = document.createElement("p");
    bar.className = "exports";
    const made = (words, act) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = words;
      button.addEventListener("click", () => act(button));
      bar.append(button);
    };
    made("Copy as Markdown", (button) => copy(markdown(table), button));
    made("CSV", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([csv(table)], { type: "text/csv" }));
      link.download = `${table.caption.textContent.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-")}.csv`;
      link.click();
      URL.revokeObjectURL(link.href);
    });
    const heading = table.parentNode.previousElementSibling;
    if (heading?.nodeName === "H3") {
      const row = document.createElement("div");
      row.className = "headed";
      heading.before(row);
      row.append(heading, bar);
    } else table.parentNode.before(bar);
  }
  root.dataset.ready = "";
}
