// Filters rows by the controls of a form. `rows` are their properties, `bars` those of a plot, `lines` those of a table.
// A row is shown if its grade is checked, its name contains the text, and each selected property is its own.
function filterRows(form, rows, bars, lines = []) {
  const places = bars.map((bar) => bar.getAttribute("transform"));
  const counted = form.querySelector("output");

  function shown(row) {
    const text = form.elements.text.value.trim().toLowerCase();
    const grades = [...form.querySelectorAll('input[name="grade"]')].filter((box) => box.checked).map((box) => box.value);
    const selects = [...form.querySelectorAll("select")];
    return grades.includes(row.grade)
      && Object.values(row).some((value) => value.toLowerCase().includes(text))
      && selects.every((select) => !select.value || row[select.name] === select.value);
  }

  function apply() {
    const hidden = new Set(rows.filter((row) => !shown(row)).map((row) => row.name));
    lines.forEach((line, at) => { line.hidden = hidden.has(rows[at].name); });
    let place = 0;
    for (const bar of bars) {
      const gone = hidden.has(bar.querySelector("[data-name]").dataset.name);
      bar.classList.toggle("gone", gone);
      if (!gone) bar.setAttribute("transform", places[place++]);
    }
    counted.value = `${rows.length - hidden.size} of ${rows.length} shown`;
  }

  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
}
