// The theme: light, dark, or that of the system. The browser stores the choice.

const KEY = "loom-theme";
const NAMES = ["auto", "light", "dark"];
const system = matchMedia("(prefers-color-scheme: dark)");

let chosen = NAMES.includes(localStorage.getItem(KEY)) ? localStorage.getItem(KEY) : "auto";

/** Applies the theme to the page and its button, and calls `changed` whenever it changes. */
export function startTheme(button, changed) {
  const apply = () => {
    document.documentElement.dataset.theme = chosen === "auto" ? (system.matches ? "dark" : "light") : chosen;
    button.textContent = { auto: "Auto", light: "Light", dark: "Dark" }[chosen];
    changed();
  };
  button.addEventListener("click", () => {
    chosen = NAMES[(NAMES.indexOf(chosen) + 1) % NAMES.length];
    localStorage.setItem(KEY, chosen);
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}
