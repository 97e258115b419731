// Applies the remembered colours before the page is painted. Runs before the modules, so it imports nothing.
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage is blocked: the colours follow the system.
}
