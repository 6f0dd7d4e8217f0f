// Makes elements, and the SQL drawer that every picture has.

/** Makes an element: `make("button", { className: "quiet", onclick }, "SQL")`. Children are text or elements. */
export function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Fills a list with pairs [value, text]. A list that is open stays open as long as the pairs are the same. */
export function options(select, pairs, chosen) {
  const wanted = JSON.stringify(pairs);
  if (select.dataset.pairs !== wanted) {
    select.dataset.pairs = wanted;
    select.replaceChildren(...pairs.map(([value, text]) => make("option", { value }, text)));
  }
  select.value = chosen ?? "";
}

/** Makes an entry of a legend: a stroke in a colour, and text. */
export function key(colour, ...text) {
  const stroke = make("i");
  stroke.style.setProperty("--of", colour);
  return make("span", {}, stroke, ...text);
}

/** A button that opens a drawer with the SQL of a picture; `show` changes the text. */
export class SqlDrawer {
  constructor() {
    this.text = make("pre");
    const copy = make("button", { type: "button", onclick: () => this.copy(copy) }, "Copy");
    this.drawer = make("div", { className: "sql", hidden: true }, this.text, copy);
    this.button = make("button", { type: "button", className: "quiet", onclick: () => this.toggle() }, "Show SQL");
    this.button.setAttribute("aria-expanded", "false");
  }

  show(sql) {
    // A selection of text inside the drawer survives as long as the SQL is the same.
    if (this.text.textContent !== sql) this.text.textContent = sql;
  }

  toggle() {
    this.drawer.hidden = !this.drawer.hidden;
    this.button.textContent = this.drawer.hidden ? "Show SQL" : "Hide SQL";
    this.button.setAttribute("aria-expanded", String(!this.drawer.hidden));
  }

  async copy(button) {
    try {
      await navigator.clipboard.writeText(this.text.textContent);
      button.textContent = "Copied";
    } catch {
      // Without HTTPS only loopback may use the clipboard: select the text, so that a key copies it.
      getSelection().selectAllChildren(this.text);
      button.textContent = "Press Ctrl+C";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  }
}
