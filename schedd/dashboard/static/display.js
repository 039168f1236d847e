// Light or dark and local times or UTC, as the reader chose; kept in this browser. It runs before the page is
// painted, and is no module: those wait.

(() => {
  document.documentElement.classList.add("js");
  const dark = document.getElementById("dark");
  const kept = (name) => { try { return localStorage.getItem(`schedd:${name}`) ?? ""; } catch { return ""; } };
  const keep = (name, value) => { try { localStorage.setItem(`schedd:${name}`, value); } catch { /* for this page alone */ } };
  const dress = (theme) => { dark.media = { light: "not all", dark: "all" }[theme] ?? "(prefers-color-scheme: dark)"; };

  dress(kept("theme"));
  addEventListener("DOMContentLoaded", () => {
    const [theme, times] = ["theme", "times"].map((id) => document.getElementById(id));
    if (!theme) return;
    theme.value = kept("theme");
    times.value = kept("times");
    theme.addEventListener("change", () => {
      keep("theme", theme.value);
      dress(theme.value);
      document.dispatchEvent(new Event("schedd:theme"));
    });
    times.addEventListener("change", () => { keep("times", times.value); location.reload(); });
  });
})();
