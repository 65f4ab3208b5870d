// Draws the plots in the theme that is shown, and draws them again when it changes.
// Counts what it drew in data-drawn and data-failed of the document, so that a test can see it.
"use strict";
{
  const root = document.documentElement;
  const { specs, themes } = JSON.parse(document.getElementById("data").textContent);
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const views = new Map();
  const shown = () => root.dataset.theme ?? (system.matches ? "dark" : "light");

  async function draw() {
    const theme = shown();
    button.textContent = theme === "dark" ? "Light" : "Dark";
    let failed = 0;
    delete root.dataset.drawn;
    for (const [name, spec] of Object.entries(specs)) {
      const place = document.getElementById(`plot-${name}`);
      views.get(name)?.finalize();
      try {
        views.set(name, await vegaEmbed(place, spec, { config: themes[theme], actions: false, renderer: "svg", tooltip: { theme } }));
      } catch (error) {
        failed += 1;
        place.textContent = `This plot could not be drawn: ${error}`;
      }
      if (theme !== shown()) return;
    }
    root.dataset.drawn = Object.keys(specs).length - failed;
    root.dataset.failed = failed;
  }

  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = shown() === "dark" ? "light" : "dark";
    draw();
  });
  system.addEventListener("change", draw);
  draw();
}
